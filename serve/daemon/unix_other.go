//go:build !linux

package daemon

import (
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
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

func (*attachments) status() (*serve.Status, bool, error) { return nil, false, nil }
