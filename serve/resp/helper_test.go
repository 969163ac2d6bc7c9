package resp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
)

// rowsOf returns rows of int32: row r has r*columns, r*columns + 1 and so on.
func rowsOf(rows, columns int) []byte {
	b := make([]byte, 0, 4*rows*columns)
	for i := range rows * columns {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return b
}

// open returns a cache of tables users (1,000 rows of 64 bytes, room for 1,010), a:b (100 rows of 8 bytes) and wide (20 rows of 200,000 bytes).
func open(t testing.TB) *cache.Cache {
	t.Helper()
	var tables []cache.Table
	for _, of := range []struct {
		name          string
		rows, columns int
	}{{"users", 1000, 16}, {"a:b", 100, 2}, {"wide", 20, 50_000}} {
		table, err := cache.FromBytes(of.name, dtype.Int32, rowsOf(of.rows, of.columns), 4*of.columns)
		if err != nil {
			t.Fatal(err)
		}
		if of.name == "users" {
			table = table.WithCapacity(1010)
		}
		tables = append(tables, table)
	}
	c, err := cache.New(cache.Options{Tables: tables, Budget: 1 << 20, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// start serves a cache on loopback until the test ends.
func start(t testing.TB, o Options) (*Server, string) {
	t.Helper()
	return startWith(t, o, func(*Server) {})
}

// startWith changes the server before it begins.
func startWith(t testing.TB, o Options, change func(*Server)) (*Server, string) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	change(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// logged is a logger and what it has written.
func logged() (*slog.Logger, func() string) {
	w := new(lockedBuffer)
	return slog.New(slog.NewTextHandler(w, nil)), w.text
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// client is a connection whose replies are read as text.
type client struct {
	t testing.TB
	net.Conn
	from *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, nc, bufio.NewReader(nc)}
}

// encoded returns a command as clients do.
func encoded(args ...string) string {
	var r reply
	r.array(len(args))
	for _, a := range args {
		r.text(a)
	}
	return string(r.out)
}

// ask sends a command and returns its reply as show does.
func (c *client) ask(args ...string) string {
	c.t.Helper()
	if _, err := io.WriteString(c, encoded(args...)); err != nil {
		c.t.Fatal(err)
	}
	return c.reply()
}

// reply returns the next reply: lines as they are, bulk strings in quotes, arrays in brackets.
func (c *client) reply() string {
	c.t.Helper()
	line, err := c.from.ReadString('\n')
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	n := 0
	fmt.Sscan(line[1:], &n)
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return "null"
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.from, b); err != nil || string(b[n:]) != "\r\n" {
			c.t.Fatalf("bulk string of %d bytes ends in %q: %v", n, b[n:], err)
		}
		return fmt.Sprintf("%q", b[:n])
	case '*', '%', '~', '>':
		if n < 0 {
			return "null"
		}
		if line[0] == '%' {
			n *= 2
		}
		all := []string{}
		for range n {
			all = append(all, c.reply())
		}
		return fmt.Sprint(all)
	case '_':
		return "null"
	}
	return line
}

// expect asks and compares. A reply wanted that ends in … may go on.
func (c *client) expect(want string, args ...string) {
	c.t.Helper()
	got := c.ask(args...)
	begin, more := strings.CutSuffix(want, "…")
	if got != want && !(more && strings.HasPrefix(got, begin)) {
		c.t.Errorf("%.80q:\n got %.300s\nwant %.300s", args, got, want)
	}
}
