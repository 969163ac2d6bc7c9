//go:build linux

package serve_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// FuzzServer_Requests: whatever a client sends after its greeting, the owner answers, or ends that connection, and goes on serving others.
func FuzzServer_Requests(f *testing.F) {
	for _, m := range []string{
		wire.Attach, wire.Ready, wire.Status, wire.Stats, wire.Explain, wire.Explanations, wire.Missed, wire.Cached, wire.Update, wire.Invalidate, wire.Refresh,
		wire.SetBudget, wire.Snapshot, wire.Drain, wire.Cancel, wire.Leave, wire.FreeCaptures, wire.Hello, wire.Retarget, wire.Absent, wire.Prefetch, "none",
	} {
		f.Add(m, `{"table":0,"rows":[1],"lanes":3,"client":1,"bytes":30000}`, []byte("x"))
		f.Add(m, `{"table":-1,"rows":[-1,9223372036854775807],"lanes":-3,"bytes":-1}`, []byte{})
		f.Add(m, `[]`, make([]byte, 64))
		f.Add(m, `{"table":`, []byte{})
	}
	c := open(f, 100, func(o *cache.Options) { o.Shared = true })
	folder, err := os.MkdirTemp("", "serve")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(folder) })
	s := listen(f, c, serve.Options{
		Address: "unix:" + filepath.Join(folder, "s"), Commands: serve.Commands{Snapshot: func(string) error { return nil }},
	})
	path := strings.TrimPrefix(s.Address(), "unix:")
	f.Fuzz(func(t *testing.T, method, body string, payload []byte) {
		w := greeted(t, path)
		defer w.Close()
		// The frame is made by hand: a body may be no JSON, which ends the connection.
		name, err := json.Marshal(method)
		if err != nil {
			t.Fatal(err)
		}
		w.Socket().Write(frame(fmt.Sprintf(`{"id":2,"method":%s,"body":%s}`, name, cmp.Or(body, "null")), payload))
		if !json.Valid([]byte(body)) {
			if w = greeted(t, path); w == nil {
				return
			}
			defer w.Close()
		}
		w.Write(&wire.Message{ID: 3, Method: wire.Status})
		for answered := false; !answered; {
			m, err := w.Read(wire.MaxJSON)
			if err != nil {
				t.Fatalf("request %s %s: %v", method, body, err)
			}
			m.CloseFiles()
			answered = m.ID == 3
		}
	})
}

// greeted returns a connection to an owner that has answered a greeting.
func greeted(t *testing.T, path string) *wire.Conn {
	t.Helper()
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	w := wire.NewConn(socket)
	socket.SetReadDeadline(time.Now().Add(time.Minute))
	w.Write(&wire.Message{ID: 1, Method: wire.Hello, Body: fmt.Appendf(nil, `{"version":%d,"name":"fuzz"}`, wire.Version)})
	if _, err := w.Read(wire.MaxJSON); err != nil {
		t.Fatal(err)
	}
	return w
}

// FuzzServer_Greeting: whatever comes first on a connection, the owner answers or ends it, and goes on serving others.
func FuzzServer_Greeting(f *testing.F) {
	hello := fmt.Sprintf(`{"id":1,"method":"hello","body":{"version":%d,"name":"x"}}`, wire.Version)
	f.Add(frame(hello, nil))
	f.Add(frame(`{"id":1,"method":"hello","body":{"version":-1}}`, nil))
	f.Add(frame(`{"id":1,"method":"hello","body":[]}`, []byte("payload")))
	f.Add(frame(`{"id":1,"method":"attach","body":{"lanes":1}}`, nil))
	f.Add(frame(`{"method":"cancel"}`, nil))
	f.Add(frame(strings.Repeat("[", 1000), nil))
	f.Add([]byte("TCS1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("TCS1\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00{"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{})
	c := open(f, 100, func(o *cache.Options) { o.Shared = true })
	folder, err := os.MkdirTemp("", "serve")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(folder) })
	s := listen(f, c, serve.Options{Address: "unix:" + filepath.Join(folder, "s")})
	path := strings.TrimPrefix(s.Address(), "unix:")
	f.Fuzz(func(t *testing.T, first []byte) {
		socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		socket.SetDeadline(time.Now().Add(time.Minute))
		socket.Write(first)
		socket.CloseWrite()
		if _, err := io.Copy(io.Discard, socket); errors.Is(err, os.ErrDeadlineExceeded) { // it may reset the connection
			t.Fatal("the owner neither answers nor ends the connection")
		}
		greeted(t, path).Close()
	})
}
