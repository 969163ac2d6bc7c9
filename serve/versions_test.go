//go:build linux

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// TestServer_Versions: an owner speaks with clients of the version before as these do, and its refusals name the versions of both.
func TestServer_Versions(t *testing.T) {
	greet := func(s *serve.Server, body string) string {
		conn, err := net.Dial("unix", strings.TrimPrefix(s.Address(), "unix:"))
		if err != nil {
			t.Fatal(err)
		}
		w := wire.NewConn(conn.(*net.UnixConn))
		defer w.Close()
		if err := w.Write(&wire.Message{ID: 1, Method: wire.Hello, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		m, err := w.Read(wire.MaxJSON)
		if err != nil {
			t.Fatal(err)
		}
		if m.Error != nil {
			return m.Error.Text
		}
		var r wire.Reception
		if err := wire.Decode(m.Body, &r); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Version)
	}
	refusal := "the owner speaks versions %d to %d of the protocol, and the client %d to %d"
	for name, c := range map[string]struct {
		change   func(*cache.Options)
		oldest   int
		byBefore string // the answer to a client of the version before
	}{
		"memory without a folder": {func(*cache.Options) {}, wire.Oldest, "6"},
		"memory in a folder":      {func(o *cache.Options) { o.State = filepath.Join(tmpfstest.Folder(t), "state") }, wire.InFolder, fmt.Sprintf(refusal, 7, 7, 6, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			own, _ := modelCache(t, filepath.Join(t.TempDir(), "model"), c.change)
			s := listen(t, own, serve.Options{})
			for body, want := range map[string]string{
				`{"version":6}`:             c.byBefore,
				`{"version":6,"newest":7}`:  "7",
				`{"version":7,"newest":9}`:  "7",
				`{"version":8,"newest":9}`:  fmt.Sprintf(refusal, c.oldest, wire.Version, 8, 9),
				`{"version":5}`:             fmt.Sprintf(refusal, c.oldest, wire.Version, 5, 5),
				`{"version":9,"newest":-1}`: fmt.Sprintf(refusal, c.oldest, wire.Version, 9, 9),
			} {
				if got := greet(s, body); !strings.Contains(got, want) {
					t.Errorf("greeting %s: %s, want %s", body, got, want)
				}
			}
		})
	}
}

// TestAttach_VersionOfNextOwner: a client whose owner is followed by one of a version that it does not speak reads on, and says the versions of both.
func TestAttach_VersionOfNextOwner(t *testing.T) {
	folder := t.TempDir()
	own, m := modelCache(t, filepath.Join(folder, "model"), func(*cache.Options) {})
	s, err := serve.Listen(own, serve.Options{Address: "unix:" + filepath.Join(folder, "s")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Close()
	l, err := net.Listen("unix", strings.TrimPrefix(s.Address(), "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // an owner of version 9
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w := wire.NewConn(conn.(*net.UnixConn))
			if m, err := w.Read(wire.MaxJSON); err == nil {
				w.Write(&wire.Message{ID: m.ID, Error: &wire.Error{Text: (&wire.VersionError{Owner: [2]int{8, 9}, Client: [2]int{wire.Oldest, wire.Version}}).Error()}})
			}
			w.Close()
		}
	}()
	want := fmt.Sprintf("the owner speaks versions 8 to 9 of the protocol, and the client %d to %d", wire.Oldest, wire.Version)
	until(t, "the client says the versions", func() bool {
		all, _ := c.Stats()
		return strings.Contains(all.OwnerError, want)
	})
	some, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Update(some, 0, []int64{1}, make([]byte, modelRowBytes)); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if err := newSoaker(m, c, 1).gather(); err != nil {
		t.Error(err)
	}
}
