// Package redis_test has clients of Redis read rows over RESP, with their defaults.
package redis_test

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/serve/resp"
)

// serve serves a table of 1,000 rows of 16 bytes: row r has the numbers from 4r on.
func serve(t *testing.T, users resp.Users) string {
	t.Helper()
	var data []byte
	for i := range 4000 {
		data = binary.LittleEndian.AppendUint32(data, uint32(i))
	}
	table, err := cache.FromBytes("users", dtype.Int32, data, 16)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 64 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := resp.New(resp.Options{Cache: c, Users: users, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	return l.Addr().String()
}

func row(r int) string {
	var b []byte
	for i := range 4 {
		b = binary.LittleEndian.AppendUint32(b, uint32(4*r+i))
	}
	return string(b)
}

// folder is where make clients installs clients of other languages.
const folder = "../../../build/clients"

// installed returns the absolute path of a client in folder. Without it the test is skipped.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(folder, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("no %s: make clients installs it, by pip, npm or mvn (%v)", name, err)
	}
	return path
}

// script runs a client's script, which ends well if the client got what it should.
func script(t *testing.T, environment []string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s on the PATH", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	t.Logf("%s", strings.TrimSpace(string(out)))
}

// TestClients: the clients that people have, with their defaults, against one server.
func TestClients(t *testing.T) {
	_, port, err := net.SplitHostPort(serve(t, resp.Users{Admin: "write"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct{ version, protocol string }{{"redis-py-4", "0"}, {"redis-py-8", "0"}, {"redis-py-8", "2"}, {"redis-py-8", "3"}} {
		t.Run(of.version+" protocol "+of.protocol, func(t *testing.T) {
			script(t, []string{"PYTHONPATH=" + installed(t, of.version)}, "python3", "testdata/redispy.py", port, of.protocol)
		})
	}
	for _, name := range []string{"ioredis", "noderedis"} {
		t.Run(name, func(t *testing.T) {
			script(t, []string{"NODE_PATH=" + installed(t, "node/node_modules")}, "node", "testdata/"+name+".js", port)
		})
	}
}

// TestClients_ValkeyGo: by default valkey-go keeps rows of its own, and has the server tell it of changes.
func TestClients_ValkeyGo(t *testing.T) {
	ctx := t.Context()
	addr := serve(t, resp.Users{Admin: "write"})
	dial := func(o valkey.ClientOption) valkey.Client {
		o.InitAddress = []string{addr}
		c, err := valkey.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c, admin := dial(valkey.ClientOption{}), dial(valkey.ClientOption{Username: "admin", Password: "write"})
	cached := func() (string, bool) {
		t.Helper()
		got := c.DoCache(ctx, c.B().Get().Key("users:7").Cache(), time.Minute)
		text, err := got.ToString()
		if err != nil {
			t.Fatal(err)
		}
		return text, got.IsCacheHit()
	}
	if got, hit := cached(); got != row(7) || hit {
		t.Errorf("the first read: %q, from the client's own %v", got, hit)
	}
	if got, hit := cached(); got != row(7) || !hit {
		t.Errorf("the second read: %q, from the client's own %v", got, hit)
	}
	if err := admin.Do(ctx, admin.B().Arbitrary("TC.SET", "users", "7", row(8)).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if got, _ := cached(); got == row(8) {
			break
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the client keeps an old row")
		}
	}
	all, err := valkey.MGet(c, ctx, []string{"users:1", "users:2", "users:1000"})
	if err != nil {
		t.Fatal(err)
	}
	one, none := all["users:2"], all["users:1000"]
	if got, err := one.ToString(); err != nil || got != row(2) || !none.IsNil() {
		t.Errorf("MGET: %q, %v, %v", got, err, none)
	}
	replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Get().Key("users:1").Build(), c.B().Exec().Build())
	if got, err := replies[2].ToArray(); err != nil || len(got) != 1 {
		t.Errorf("EXEC: %v, %v", got, err)
	}
	if entry, err := c.Do(ctx, c.B().Scan().Cursor(0).Match("users:*").Count(5000).Build()).AsScanEntry(); err != nil || len(entry.Elements) != 1000 || entry.Cursor != 0 {
		t.Errorf("SCAN: %d keys, %v", len(entry.Elements), err)
	}
}
