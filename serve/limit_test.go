//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
)

// Rows of the table of limited processes: 96 MiB, large beside what a Go program takes.
const limitedRows, limitedRowBytes = 192 << 10, 512

// limitedRow returns a row.
func limitedRow(row int64) []byte {
	b := make([]byte, limitedRowBytes)
	for i := range limitedRowBytes / 8 {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(row+1)*0x9e3779b97f4a7c15+uint64(i))
	}
	return b
}

func init() {
	// limitedown ADDRESS FILE STATE: waits for a line, owns a cache, and waits for the end.
	roles["limitedown"] = func(p *parent, args []string) error {
		p.wait()
		table, err := cache.Open(args[1])
		if err != nil {
			return err
		}
		return p.own(args[0], cache.Options{
			Tables: []cache.Table{table}, Budget: 24 << 20, Codec: cache.CodecNone, Shared: true, State: args[2], Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		})
	}
	// limited ADDRESS: waits for a line, attaches, and reads all rows at each further line, once it has an owner.
	roles["limited"] = func(p *parent, args []string) error {
		p.wait()
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{})
		if err != nil {
			return err
		}
		out, rows := make([]byte, 1024*limitedRowBytes), make([]int64, 1024)
		for p.say("attached"); ; p.say("read") {
			if _, ok := p.wait(); !ok {
				return nil
			}
			for s, err := c.Stats(); err != nil || s.OwnerError != ""; s, err = c.Stats() {
				time.Sleep(5 * time.Millisecond)
			}
			for first := int64(0); first < limitedRows; first += int64(len(rows)) {
				for i := range rows {
					rows[i] = first + int64(i)
				}
				if err := c.Gather(context.Background(), cache.Request{Rows: rows, Out: out}); err != nil {
					return err
				}
				for i, row := range rows {
					if got := out[i*limitedRowBytes:][:limitedRowBytes]; !bytes.Equal(got, limitedRow(row)) {
						return fmt.Errorf("row %d is %x", row, got)
					}
				}
			}
		}
	}
}

// memoryGroup is a control group of this test, of version 1 or 2, below that of this process.
type memoryGroup struct {
	t              *testing.T
	path           string
	usage, limit   string   // files
	events, killed string   // the file that has the number of processes killed for memory, and its name there
	cache          []string // names in memory.stat of what the system can drop
}

func newMemoryGroup(t *testing.T) *memoryGroup {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	var why error
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := &memoryGroup{t: t, usage: "memory.usage_in_bytes", limit: "memory.limit_in_bytes", events: "memory.oom_control", killed: "oom_kill", cache: []string{"total_active_file", "total_inactive_file"}}
		root := "/sys/fs/cgroup/memory"
		if f[1] == "" {
			root = "/sys/fs/cgroup"
			g.usage, g.limit, g.events, g.cache = "memory.current", "memory.max", "memory.events", []string{"active_file", "inactive_file"}
		} else if f[1] != "memory" {
			continue
		}
		for _, parent := range []string{f[2], "/"} { // a container sees its own group as the root
			g.path = filepath.Join(root, parent, fmt.Sprintf("tensorcache-test-%d", os.Getpid()))
			if err := os.Mkdir(g.path, 0o755); err != nil {
				why = errors.Join(why, err)
				continue
			}
			t.Cleanup(func() {
				for end := time.Now().Add(10 * time.Second); os.Remove(g.path) != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				}
			})
			if _, err := os.Stat(filepath.Join(g.path, g.limit)); err != nil {
				why = errors.Join(why, err)
				continue
			}
			return g
		}
	}
	t.Skipf("no control group can be made that bounds memory: %v", why)
	return nil
}

// number returns the number of a name in a file of lines, or the file's only number for "".
func (g *memoryGroup) number(file, name string) (n int64) {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.path, file))
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 1 && name == "" || len(f) == 2 && f[0] == name {
			n, _ = strconv.ParseInt(f[len(f)-1], 10, 64)
		}
	}
	return n
}

// taken returns the memory that its processes take, without pages of files that the system can drop.
func (g *memoryGroup) taken() int64 {
	n := g.number(g.usage, "")
	for _, name := range g.cache {
		n -= g.number("memory.stat", name)
	}
	return n
}

func (g *memoryGroup) set(file string, to int64) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.path, file), strconv.AppendInt(nil, to, 10), 0); err != nil {
		g.t.Fatal(err)
	}
}

// start starts a child whose role waits for a line, in the group.
func (g *memoryGroup) start(role ...string) *child {
	g.t.Helper()
	c := start(g.t, role...)
	g.set("cgroup.procs", int64(c.cmd.Process.Pid))
	c.say("go")
	return c
}

// TestOwner_KilledWithinLimit: with 1.4 times the memory of an owner, owners are killed and follow each other while a client is attached, and the client reads right rows.
func TestOwner_KilledWithinLimit(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	g := newMemoryGroup(t)
	folder := tmpfstest.Folder(t)
	file, address, state := filepath.Join(t.TempDir(), "x.npy"), "unix:"+filepath.Join(folder, "s"), filepath.Join(folder, "state")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d, %d), }", limitedRows, limitedRowBytes/8))
	for first := int64(0); first < limitedRows; first += 1024 {
		var part []byte
		for row := first; row < first+1024; row++ {
			part = append(part, limitedRow(row)...)
		}
		if _, err := f.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	owner := g.start("limitedown", address, file, state)
	owner.expect("ready")
	one := g.taken()
	g.set(g.limit, one*7/5)
	client := g.start("limited", address)
	client.expect("attached")
	client.say("read")
	client.expect("read")
	for range 3 {
		owner.kill()
		owner = g.start("limitedown", address, file, state)
		owner.expect("ready")
		client.say("read")
		client.expect("read")
	}
	t.Logf("one owner takes %d bytes, owner and client %d", one, g.taken())
	if n := g.number(g.events, g.killed); n != 0 {
		t.Errorf("%d processes were killed for memory", n)
	}
}
