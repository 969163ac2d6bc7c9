package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// answering listens at a path and greets one client. It hands every further message to handle.
func answering(t *testing.T, handle func(*Conn, *Message)) (address string) {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if handle == nil { // nobody takes the connection
		return "unix:" + path
	}
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		o := NewConn(c)
		t.Cleanup(func() { o.Close() })
		m, err := o.Read(MaxJSON)
		if err != nil || o.Write(&Message{ID: m.ID, Body: fmt.Appendf(nil, `{"version":%d}`, Version)}) != nil {
			return
		}
		for {
			m, err := o.Read(MaxJSON + MaxPayload)
			if err != nil {
				return
			}
			handle(o, m)
		}
	}()
	return "unix:" + path
}

// silence is the time-out of these tests.
const silence = 200 * time.Millisecond

// checkSilent checks the error of a request to an owner that gives no sign of life.
func checkSilent(t *testing.T, err error, address, method string) {
	t.Helper()
	want := fmt.Sprintf("wire: owner at %s (process %d) has not answered %s within 200ms: it gives no sign of life: stopped, or out of file descriptors", address, os.Getpid(), method)
	if !errors.Is(err, ErrSilent) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestPeer_Silent: an owner that does not take the connection, does not answer or does not read makes requests fail, and the error names it.
func TestPeer_Silent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	address := answering(t, nil)
	_, _, err := Dial(ctx, address, "test", silence, nil)
	checkSilent(t, err, address, Hello)

	address = answering(t, func(*Conn, *Message) {})
	p, _, err := Dial(ctx, address, "test", silence, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 { // the connection lives on
		_, err = p.Call(ctx, "explain", nil, nil, nil)
		checkSilent(t, err, address, "explain")
	}
	short, cancel := context.WithTimeout(ctx, silence/10)
	defer cancel()
	if _, err := p.Call(short, "explain", nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wire: owner at "+address) {
		t.Errorf("error %v, want one that wraps the context's and names the owner", err)
	}

	hold := make(chan struct{})
	defer close(hold)
	address = answering(t, func(*Conn, *Message) { <-hold })
	if p, _, err = Dial(ctx, address, "test", silence, nil); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.conn.Write(&Message{Method: Ping}); err != nil { // what is held: the owner reads nothing after it
		t.Fatal(err)
	}
	_, err = p.Call(ctx, "update", nil, make([]byte, MaxPayload), nil)
	checkSilent(t, err, address, "update")
	<-p.Done() // a part of the frame has been sent
	_, err = p.Call(ctx, "update", nil, nil, nil)
	checkSilent(t, err, address, "requests")
}

// TestPeer_SilentWriters: of requests at a time that an owner does not read, all say so, also those that find the connection closed by the first.
func TestPeer_SilentWriters(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	defer close(hold)
	address := answering(t, func(*Conn, *Message) { <-hold })
	p, _, err := Dial(context.Background(), address, "test", silence, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.conn.Write(&Message{Method: Ping}); err != nil { // what is held: the owner reads nothing after it
		t.Fatal(err)
	}
	const writers = 8
	failed := make(chan error, writers)
	for range writers {
		go func() {
			_, err := p.Call(context.Background(), "update", nil, make([]byte, MaxPayload), nil)
			failed <- err
		}()
	}
	for range writers {
		err := <-failed
		if !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "wire: owner at "+address) {
			t.Errorf("error %v, want one that wraps ErrSilent and names the owner", err)
		}
	}
	<-p.Done()
	if err := p.Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("the connection ended with %v", err)
	}
}

// TestPeer_AtWork: a request may take longer than the time-out as long as the owner gives signs of life, by answers to pings, or by notices.
func TestPeer_AtWork(t *testing.T) {
	t.Parallel()
	const timeout = time.Second // machines are busy
	for name, handle := range map[string]func() func(*Conn, *Message){
		"pings": func() func(*Conn, *Message) {
			pings, asked := 0, uint64(0)
			return func(o *Conn, m *Message) {
				switch m.Method {
				case "merge":
					asked = m.ID
				case Ping:
					o.Write(&Message{ID: m.ID})
					if pings++; pings == 3*looks {
						o.Write(&Message{ID: asked})
					}
				}
			}
		},
		"a notice that takes long": func() func(*Conn, *Message) {
			return func(o *Conn, m *Message) {
				if m.Method == "merge" {
					o.Write(&Message{Method: Memory})
					o.Write(&Message{ID: m.ID})
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, err := Dial(context.Background(), answering(t, handle()), "test", timeout, func(*Message) { time.Sleep(3 * timeout) })
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			begun := time.Now()
			if _, err := p.Call(context.Background(), "merge", nil, nil, nil); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took < 2*timeout {
				t.Errorf("took %v", took)
			}
		})
	}
}
