//go:build !linux

package wire

import (
	"net"
	"os"
)

// Descriptors are sent on Linux only: nothing else has files in memory of fixed length.
var besideBytes = 0

func rightsOf([]*os.File) []byte { return nil }

func filesOf([]byte, int) ([]*os.File, error) { return nil, nil }

// Process is the process at the other end of a connection, of which other systems say nothing.
type Process struct{ PID, UID int }

func ownerOf(*net.UnixConn) (Process, error) { return Process{}, nil }

func (Process) Wait() bool { return false }
func (Process) Close()     {}
