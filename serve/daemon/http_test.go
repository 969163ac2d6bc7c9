package daemon

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestHTTPConns_Idle: the connection that has been idle for longest makes room; one whose request is under way does not.
func TestHTTPConns_Idle(t *testing.T) {
	began, end := make(chan struct{}, 2), make(chan struct{})
	s, _ := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-end
		}
		io.WriteString(w, "x")
	}), slog.New(slog.DiscardHandler))
	conns := &httpConns{most: 2, log: slog.New(slog.DiscardHandler)}
	conns.mu.since = map[net.Conn]time.Time{}
	s.ConnState = conns.changed
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	dial := func(path string) (ask func() error) {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		from := bufio.NewReader(c)
		return func() error {
			r, err := http.ReadResponse(from, nil)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			return err
		}
	}
	slow := dial("/slow")
	<-began
	idle := dial("/")
	if err := idle(); err != nil {
		t.Fatal(err)
	}
	isIdle := func() bool {
		conns.mu.Lock()
		defer conns.mu.Unlock()
		for _, since := range conns.mu.since {
			if !since.IsZero() {
				return true
			}
		}
		return false
	}
	for !isIdle() { // its answer is sent before
		time.Sleep(time.Millisecond)
	}
	third := dial("/slow") // in the place of the idle one
	<-began
	if err := idle(); err == nil {
		t.Error("the idle connection goes on")
	}
	if err := dial("/")(); err == nil {
		t.Error("a connection beyond the bound is served beside two requests under way")
	}
	close(end)
	for _, ask := range []func() error{slow, third} {
		if err := ask(); err != nil {
			t.Errorf("a request under way: %v", err)
		}
	}
	if err := dial("/")(); err != nil {
		t.Errorf("after the requests: %v", err)
	}
}

// TestShares: of few files, each kind has some; of many, --resp has all that it asks for.
func TestShares(t *testing.T) {
	for _, c := range []struct{ limit, used, http, resp int }{{64, 20, 8, 4}, {128, 20, 16, 60}, {1024, 40, 128, 600}, {65536, 100, 256, 64156}} {
		if got := httpShare(c.limit); got != c.http {
			t.Errorf("limit %d: %d connections of --http, want %d", c.limit, got, c.http)
		}
		if got := respShare(c.limit, c.used, c.http); got != c.resp {
			t.Errorf("limit %d: %d clients of --resp, want %d", c.limit, got, c.resp)
		}
	}
}
