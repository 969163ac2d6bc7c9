//go:build linux

package daemon

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// TestRun_SocketTaken: a program whose --listen cannot be served says so before it loads the tables, which may take minutes.
func TestRun_SocketTaken(t *testing.T) {
	table, err := cache.FromSlice("rows", make([]int64, 80), 8)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 4096, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	folder := t.TempDir()
	s, err := serve.Listen(c, serve.Options{Address: "unix:" + filepath.Join(folder, "taken")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newCache = func(context.Context, cache.Options) (*cache.Cache, error) { return nil, errors.New("loaded") }
	defer func() { newCache = cache.NewContext }()
	for name, want := range map[string]string{
		"taken": "another process listens there", "file": "must not be the path of a file", "none/s": "no such file or directory", "free": "loaded",
	} {
		config, err := Load(strings.Fields("--table name=t,dtype=float32,columns=4,capacity=100 --gpu-memory 4KiB --device host --listen unix:" + filepath.Join(folder, name)))
		if err != nil {
			t.Fatal(err)
		}
		if err := Run(config, Program{Stdout: io.Discard, Stderr: io.Discard}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
