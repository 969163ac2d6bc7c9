//go:build linux

package serve_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// counter counts the records of a message.
type counter struct {
	slog.Handler
	message string
	n       atomic.Int64
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.message {
		c.n.Add(1)
	}
	return nil
}

func init() {
	// crowded ADDRESS: an owner that can open no further file, until the next line. It says how many records that made.
	roles["crowded"] = func(p *parent, args []string) error {
		table, err := cache.FromSlice("rows", make([]int64, 80), 8)
		if err != nil {
			return err
		}
		c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 4096, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
		if err != nil {
			return err
		}
		defer c.Close()
		failed := &counter{message: "connection not accepted"}
		s, err := serve.Listen(c, serve.Options{Address: args[0], Logger: slog.New(failed)})
		if err != nil {
			return err
		}
		defer s.Close()
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
			return err
		}
		p.say("listens")
		p.wait()
		for failed.n.Load() == 0 { // the client has not come yet
			time.Sleep(time.Millisecond)
		}
		p.say("%d", failed.n.Load())
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		p.wait()
		return nil
	}
}

// TestServer_TooManyFiles: an owner that can open no further file waits before it tries again to take a connection, and takes it once it can.
func TestServer_TooManyFiles(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "crowded", address)
	owner.expect("listens")
	dialled := make(chan error, 1)
	go func() {
		d, err := serve.Dial(ctx, address, "test")
		if err == nil {
			d.Close()
		}
		dialled <- err
	}()
	time.Sleep(500 * time.Millisecond)
	owner.say("go on")
	n, err := strconv.Atoi(owner.line())
	if err != nil || n < 1 || n > 20 { // pauses of 1, 2, 4 … ms
		t.Errorf("%d attempts in half a second, %v", n, err)
	}
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

// TestServer_LongAnswer: an answer that is longer than a frame becomes an error, not silence.
func TestServer_LongAnswer(t *testing.T) {
	race.SkipSequential(t)
	s := listen(t, open(t, 10, nil), serve.Options{})
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: strings.TrimPrefix(s.Address(), "unix:"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	w := wire.NewConn(socket)
	defer w.Close()
	socket.SetReadDeadline(time.Now().Add(time.Minute))
	rows := `{"rows":[` + strings.Repeat("1,", 400_000) + `1]}`
	for _, m := range []*wire.Message{{ID: 1, Method: wire.Hello, Body: fmt.Appendf(nil, `{"version":%d}`, wire.Version)}, {ID: 2, Method: wire.Explain, Body: []byte(rows)}} {
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
		answer, err := w.Read(wire.MaxJSON)
		if err != nil {
			t.Fatal(m.Method, err)
		}
		if m.ID == 2 && (answer.ID != 2 || answer.Error == nil || !strings.Contains(answer.Error.Text, "answer is too long, ask for fewer rows")) {
			t.Errorf("%+v", answer)
		}
	}
}

// TestServer_Names: what a client calls itself is shown by terminals, so it has no control characters, and is short.
func TestServer_Names(t *testing.T) {
	s := listen(t, open(t, 10, shared), serve.Options{})
	attach(t, s, cache.AttachOptions{Name: "a\x1b[31m\nb c\xff" + strings.Repeat("é", 100)})
	status, err := dial(t, s).Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := status.Attached[0].Name; !strings.HasPrefix(got, "a[31mb cé") || len(got) > 128 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%q", got)
	}
}
