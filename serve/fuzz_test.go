//go:build linux

package serve_test

import (
	"encoding/json"
	"fmt"
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
		wire.SetBudget, wire.Snapshot, wire.Drain, wire.Cancel, wire.Leave, wire.Vacate, wire.Hello, "none",
	} {
		f.Add(m, `{"table":0,"rows":[1],"lanes":3,"client":1,"bytes":30000}`, []byte("x"))
		f.Add(m, `{"table":-1,"rows":[-1,9223372036854775807],"lanes":-3,"bytes":-1}`, []byte{})
		f.Add(m, `[]`, make([]byte, 64))
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
		socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		w := wire.NewConn(socket)
		defer w.Close()
		socket.SetReadDeadline(time.Now().Add(time.Minute))
		w.Write(&wire.Message{ID: 1, Method: wire.Hello, Body: fmt.Appendf(nil, `{"version":%d,"name":"fuzz"}`, wire.Version)})
		if _, err := w.Read(wire.MaxJSON); err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(body)) {
			body = "{}"
		}
		w.Write(&wire.Message{ID: 2, Method: method, Body: []byte(body), Payload: payload})
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
