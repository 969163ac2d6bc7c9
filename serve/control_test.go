//go:build linux

package serve_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

var ctx = context.Background()

// open returns a cache of a table of rows × 8 int64, row r holding r × 8 and so on.
func open(t testing.TB, rows int, change func(*cache.Options)) *cache.Cache {
	t.Helper()
	values := make([]int64, rows*8)
	for i := range values {
		values[i] = int64(i)
	}
	table, err := cache.FromSlice("rows", values, 8)
	if err != nil {
		t.Fatal(err)
	}
	o := cache.Options{
		Tables: []cache.Table{table}, Budget: int64(rows) * 32, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
	}
	if change != nil {
		change(&o)
	}
	c, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// listen serves a cache at a new address.
func listen(t testing.TB, c *cache.Cache, o serve.Options) *serve.Server {
	t.Helper()
	if o.Address == "" {
		o.Address = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	s, err := serve.Listen(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func dial(t testing.TB, s *serve.Server) *serve.Control {
	t.Helper()
	d, err := serve.Dial(ctx, s.Address(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestControl_Status(t *testing.T) {
	c := open(t, 1000, nil)
	d := dial(t, listen(t, c, serve.Options{}))
	out := make([]byte, 3*64)
	if err := c.Gather(ctx, cache.Request{Rows: []int64{1, 2, 999}, Out: out}); err != nil {
		t.Fatal(err)
	}
	s, err := d.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Lookups != 3 || len(s.Tables) != 1 || s.Tables[0].Name != "rows" || s.Tables[0].Rows != 1000 || s.Tables[0].RowBytes != 64 ||
		s.Tables[0].CachedRows == 0 || s.Process != os.Getpid() || s.Clients != 0 {
		t.Errorf("%+v", s)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"clients":0`, `"lookups":3`, `"hits":`, `"rows_cached":`} {
		if !strings.Contains(string(raw), key) {
			t.Errorf("no %s in %s", key, raw)
		}
	}
}

func TestControl_Commands(t *testing.T) {
	snapshots := []string{}
	c := open(t, 1000, nil)
	d := dial(t, listen(t, c, serve.Options{Commands: serve.Commands{Snapshot: func(path string) error {
		snapshots = append(snapshots, path)
		return errors.New("the disk is full")
	}}}))
	if err := d.Refresh(ctx); err != nil {
		t.Error(err)
	}
	if err := d.SetBudget(ctx, 20000); err != nil {
		t.Error(err)
	}
	if s, err := d.Status(ctx); err != nil || s.Refresh.Cycles != 2 || s.BudgetBytes != 20000 {
		t.Errorf("%v, %+v", err, s)
	}
	if err := d.SetBudget(ctx, 1); err == nil || !strings.Contains(err.Error(), "must hold at least one slot") {
		t.Error(err)
	}
	if err := d.Snapshot(ctx, "x"); err == nil || err.Error() != "the disk is full" || len(snapshots) != 1 || snapshots[0] != "x" {
		t.Error(err, snapshots)
	}
	if all, err := d.Explain(ctx, 0, []int64{5}); err != nil || len(all) != 1 || all[0].Row != 5 || all[0].StoredBytes != 64 {
		t.Errorf("%v, %+v", err, all)
	}
	if _, err := d.Explain(ctx, 7, []int64{5}); err == nil || err.Error() != `serve: table ("7") must be one of 1: rows` {
		t.Error(err)
	}
	if err := d.Drain(ctx); err != nil {
		t.Error(err)
	}
}

// TestControl_Cancel: the owner ends a request whose context has ended.
func TestControl_Cancel(t *testing.T) {
	begun, cancelled := make(chan struct{}), make(chan error, 1)
	d := dial(t, listen(t, open(t, 10, nil), serve.Options{Commands: serve.Commands{Refresh: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		cancelled <- ctx.Err()
		return ctx.Err()
	}}}))
	short, cancel := context.WithCancel(ctx)
	go func() {
		<-begun
		cancel()
	}()
	if err := d.Refresh(short); err == nil || err.Error() != context.Canceled.Error() {
		t.Error(err)
	}
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestServer_Finish: it waits for a change under way, takes no other, and does not wait for processes that are attached.
func TestServer_Finish(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	c := open(t, 100, shared)
	s := listen(t, c, serve.Options{Commands: serve.Commands{Refresh: func(ctx context.Context) error {
		close(begun)
		<-end
		return nil
	}}})
	d, a := dial(t, s), attach(t, s, cache.AttachOptions{})
	refreshed := make(chan error, 1)
	go func() { refreshed <- d.Refresh(ctx) }()
	<-begun
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Finish(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "serve: finish: changes (1) by clients are still under way") {
		t.Error(err)
	}
	finished := make(chan error, 1)
	go func() { finished <- s.Finish(ctx) }()
	for what, err := range map[string]error{"update": a.Update(ctx, 0, []int64{1}, make([]byte, 64)), "budget": d.SetBudget(ctx, 20000), "invalidate": a.Invalidate(0, []int64{1})} {
		if err == nil || !strings.Contains(err.Error(), "serve: no further changes: the owner is about to end") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{}); err == nil || !strings.Contains(err.Error(), "the owner is about to end") {
		t.Error(err)
	}
	select {
	case err := <-finished:
		t.Errorf("finished during a change: %v", err)
	default:
	}
	close(end)
	if err := <-refreshed; err != nil {
		t.Error(err)
	}
	if err := <-finished; err != nil {
		t.Error(err)
	}
	if _, err := d.Status(ctx); err != nil {
		t.Error(err)
	}
	checkRows(t, a, 100, rand.New(rand.NewPCG(1, 1)))
}

func TestListen_Socket(t *testing.T) {
	c, path := open(t, 10, nil), filepath.Join(t.TempDir(), "s")
	// A socket that a killed process left behind.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s := listen(t, c, serve.Options{Address: "unix:" + path})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := serve.Listen(c, serve.Options{Address: "unix:" + path}); err == nil || !strings.Contains(err.Error(), "must not be in use: another process listens there") {
		t.Error(err)
	}
	absent := "unix:" + filepath.Join(t.TempDir(), "none", "s")
	if _, err := serve.Listen(c, serve.Options{Address: absent}); err == nil || !strings.Contains(err.Error(), "serve: address ("+absent+") must be in a folder that exists") {
		t.Error(err)
	}
	if err := serve.Free("unix:" + path); err == nil || !strings.Contains(err.Error(), "must not be in use: another process listens there") {
		t.Error(err)
	}
	dial(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := serve.Free("unix:" + path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := serve.Dial(ctx, "unix:"+path, ""); err == nil {
		t.Error("connected to a closed server")
	}
	next := listen(t, c, serve.Options{Address: "unix:" + path})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	dial(t, next) // closing the first one again has left the socket of the next one alone
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Listen(c, serve.Options{Address: "unix:" + file}); err == nil || !strings.Contains(err.Error(), "must not be the path of a file") {
		t.Error(err)
	}
	if _, err := os.Stat(file + ".lock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock beside a file: %v", err)
	}
}

func TestListen_Options(t *testing.T) {
	_, err := serve.Listen(open(t, 10, nil), serve.Options{Address: "tcp:1", MaxClients: 2000, MaxLanes: -1, MaxScratch: 5, StoppedAfter: 1})
	if !errors.Is(err, serve.ErrOptions) {
		t.Fatal(err)
	}
	want := `serve: Address: wire: address ("tcp:1") must be unix:PATH
serve: MaxClients (2000) must be 1 to 1024
serve: MaxLanes (-1) must be 1 to 1024
serve: MaxScratch (5 B) must be 0, for no limit, or at least 1048576
serve: StoppedAfter (1ns) must be at least 100ms
serve: bad options`
	if err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// frame returns a frame without descriptors.
func frame(object string, payload []byte) []byte {
	b := []byte("TCS1\x00\x00\x00\x00")
	b = binary.LittleEndian.AppendUint32(b, uint32(len(object)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, object...), payload...)
}

// TestServer_BadBytes: what is no frame, or no greeting, ends the connection, and only that.
func TestServer_BadBytes(t *testing.T) {
	s := listen(t, open(t, 10, nil), serve.Options{})
	path := strings.TrimPrefix(s.Address(), "unix:")
	for name, sent := range map[string]string{
		"nothing":     "",
		"HTTP":        "GET / HTTP/1.1\r\n\r\n",
		"long JSON":   "TCS1\x00\x00\x00\x00\xff\xff\xff\x7f\x00\x00\x00\x00",
		"long":        "TCS1\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff",
		"descriptors": "TCS1\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"no JSON":     string(frame("xx", nil)),
		"version":     string(frame(`{"id":1,"method":"hello","body":{"version":9}}`, nil)),
		"no greeting": string(frame(`{"id":1,"method":"status"}`, nil)),
	} {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(sent))
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		answer := make([]byte, 4096)
		n := 0
		for {
			m, err := c.Read(answer[n:])
			n += m
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: the connection is still open", name)
				}
				break
			}
		}
		if want := map[string]string{"version": fmt.Sprintf("the owner speaks versions %d to %d of the protocol, and the client 9 to 9", wire.Oldest, wire.Version), "no greeting": "first request"}[name]; !strings.Contains(string(answer[:n]), want) {
			t.Errorf("%s: answered %q, want %s", name, answer[:n], want)
		}
		c.Close()
	}
	dial(t, s)
}
