//go:build !linux

package serve

import (
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/cache"
)

// Server accepts clients of a cache. There is none but on Linux.
type Server struct{}

var errLinux = errors.New("serve: other processes can be let in on Linux only")

// Listen returns an error: other processes can be let in on Linux only.
func Listen(*cache.Cache, Options) (*Server, error) { return nil, errLinux }

func (s *Server) Address() string              { return "" }
func (s *Server) Status() (*Status, error)     { return nil, errLinux }
func (s *Server) Drain(context.Context) error  { return errLinux }
func (s *Server) Finish(context.Context) error { return errLinux }
func (s *Server) Close() error                 { return nil }

// Free returns an error: other processes can be let in on Linux only.
func Free(string) error { return errLinux }
