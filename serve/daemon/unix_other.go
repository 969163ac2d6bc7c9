//go:build !linux

package daemon

import (
	"context"
	"errors"
	"maps"

	"github.com/tensorcache/tensorcache/cache"
)

// attachments are what --listen serves. Other systems than Linux cannot share memory as it needs.
type attachments struct{}

func (*attachments) share(*Config, *cache.Options) {}

func (*Config) checkListen() error { return errors.New("--listen needs Linux") }

func (*attachments) free(*Config) error { return nil }

func (*attachments) listen(*running) error { return nil }

func (*attachments) finish(context.Context) error { return nil }
func (*attachments) close() error                 { return nil }

func (*attachments) readers(*cache.Cache) []string                    { return nil }
func (*attachments) holding() []float64                               { return nil }
func (*attachments) retire(context.Context, *cache.Cache, bool) error { return nil }

// status returns what TC.STATS and /stats tell.
func (r *running) status() (any, error) {
	c := r.opened.Load()
	if c == nil {
		return nil, errLoading
	}
	s, err := c.Stats()
	if err == nil {
		maps.Copy(s.Errors, r.errors())
	}
	return s, err
}
