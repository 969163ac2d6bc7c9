package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

const versionRow = 64 // bytes

// versioned returns an .npy file of int32 whose row r has version<<16 + r in every element.
func versioned(t testing.TB, name string, rows, version int) string {
	t.Helper()
	b, err := os.ReadFile(features(t, name, rows, versionRow/4))
	if err != nil {
		t.Fatal(err)
	}
	data := b[len(b)-rows*versionRow:]
	for i := range rows * versionRow / 4 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(version<<16+i/(versionRow/4)))
	}
	return write(t, name, b)
}

// versionOf returns the version of a row, or an error for what is no row.
func versionOf(row int64, b []byte) (version int64, err error) {
	first := binary.LittleEndian.Uint32(b)
	for i := 0; i < versionRow; i += 4 {
		if binary.LittleEndian.Uint32(b[i:]) != first {
			return 0, fmt.Errorf("row %d is torn: % x", row, b[:versionRow])
		}
	}
	if got := int64(first & 0xffff); got != row {
		return 0, fmt.Errorf("row %d is row %d", row, got)
	}
	return int64(first >> 16), nil
}

// readers read versioned rows until they are stopped, and check them: none of an older version than was acknowledged when the batch began.
type readers struct {
	acknowledged, batches atomic.Int64
	mixed                 atomic.Int64 // batches with rows of several versions
	stop                  atomic.Bool
	all                   sync.WaitGroup
	mu                    sync.Mutex
	err                   error
}

// begin reads batches by a function, in the background.
func (r *readers) begin(read func(rows []int64, out []byte) error) {
	r.all.Go(func() {
		rows, out := make([]int64, 50), make([]byte, 50*versionRow)
		for n := int64(0); !r.stop.Load(); n++ {
			for i := range rows {
				rows[i] = (n*131 + int64(i)*17) % 1000
			}
			least := r.acknowledged.Load()
			err := read(rows, out)
			first := int64(-1)
			for i, row := range rows {
				if err != nil {
					break
				}
				var version int64
				if version, err = versionOf(row, out[i*versionRow:]); err == nil && version < least {
					err = fmt.Errorf("row %d is of version %d after %d was acknowledged", row, version, least)
				}
				if first >= 0 && version != first {
					r.mixed.Add(1)
				}
				first = version
			}
			if err != nil {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
				return
			}
			r.batches.Add(1)
		}
	})
}

func (r *readers) end(t *testing.T) {
	t.Helper()
	r.stop.Store(true)
	r.all.Wait()
	if r.err != nil || r.batches.Load() == 0 {
		t.Errorf("after %d batches: %v", r.batches.Load(), r.err)
	}
}

// gatherer returns a reader by TC.GATHER on a connection of its own.
func (p *process) gatherer(table string) func(rows []int64, out []byte) error {
	c, err := net.Dial("tcp", p.resp)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return func(rows []int64, out []byte) error {
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "TC.GATHER %s %s\r\n", table, strings.Trim(fmt.Sprint(rows), "[]"))
		reply := make([]byte, len(fmt.Sprintf("$%d\r\n", len(out)))+len(out)+2)
		if n, err := io.ReadAtLeast(c, reply, 1); err != nil || reply[0] != '$' {
			return fmt.Errorf("%q, %v", reply[:n], err)
		} else if _, err := io.ReadFull(c, reply[n:]); err != nil {
			return err
		}
		copy(out, reply[len(reply)-2-len(out):])
		return nil
	}
}

// table runs the command table of a tensorcached.
func (p *process) table(args ...string) (out, failed string) {
	p.t.Helper()
	out, stderr, status := runs(p.t, append([]string{"table", args[0], "--connect", p.socket()}, args[1:]...)...)
	if (status == 0) != (stderr == "") {
		p.t.Errorf("%q: status %d, %q", args, status, stderr)
	}
	return out, stderr
}

// TestTable_Swap: contents of a table are swapped under load: no batch fails, none has rows of two contents, none is of the old ones after the
// acknowledgement, for clients of RESP and attached processes alike; what was cached stays cached.
func TestTable_Swap(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	p := start(t, "--table", "name=t,file="+versioned(t, "v1.npy", 1000, 1), "--codec", "none", "--gpu-memory", "64KiB", "--listen", socket, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0")
	attached, err := cache.Attach(context.Background(), socket, cache.AttachOptions{Name: "trainer"})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	r := new(readers)
	r.acknowledged.Store(1)
	r.begin(p.gatherer("t"))
	r.begin(p.gatherer("0"))
	r.begin(func(rows []int64, out []byte) error {
		return attached.Gather(context.Background(), cache.Request{Rows: rows, Out: out})
	})
	cached := p.stats().Tables[0].RowsCached
	for version := 2; version < 6; version++ {
		out, failed := p.table("replace", "--table", "t", "--file", versioned(t, "next.npy", 1000, version))
		if out != "t replaced\n" {
			t.Fatalf("%q, %q\n%s", out, failed, p.logged())
		}
		r.acknowledged.Store(int64(version))
		for begun := r.batches.Load(); r.batches.Load() < begun+30 && r.err == nil; time.Sleep(time.Millisecond) {
		}
	}
	r.end(t)
	if n := r.mixed.Load(); n != 0 {
		t.Errorf("%d batches have rows of two contents", n)
	}
	if s := p.stats(); s.Tables[0].RowsCached < cached*9/10 || *s.Clients != 1 {
		t.Errorf("%d rows cached before, %d afterwards, %d clients", cached, s.Tables[0].RowsCached, *s.Clients)
	}
	// What cannot be done leaves the table.
	short := features(t, "short.npy", 10, 3)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replace", "--table", "t", "--file", short}, "must have rows of int32 and 64 bytes, and a capacity of at most 1000, while processes are attached that know it so: trainer (process "},
		{[]string{"replace", "--table", "t", "--file", short, "--in-place"}, "its rows (int32, 12 bytes) must be like those of before (int32, 64 bytes)"},
		{[]string{"replace", "--table", "t", "--file", "/nowhere.npy"}, "no such file"},
		{[]string{"replace", "--table", "u", "--file", short}, `table ("u") must be one of 1: t`},
		{[]string{"add", "--table", "t", "--file", short}, `table: name ("t") must not be that of an open table`},
		{[]string{"add", "--table", "7", "--file", short}, "must not be a number"},
		{[]string{"drop", "--table", "t"}, "while processes are attached to its cache: trainer (process "},
		{[]string{"drop"}, "--table must be given"},
	} {
		if _, failed := p.table(c.args...); !strings.Contains(failed, c.want) {
			t.Errorf("%q: %q", c.args, failed)
		}
	}
	attached.Close()
	if _, failed := p.table("drop", "--table", "t"); !strings.Contains(failed, "the last table must not be dropped") {
		t.Errorf("the last table: %q", failed)
	}
	if err := p.gatherer("t")([]int64{5}, make([]byte, versionRow)); err != nil {
		t.Error(err)
	}
}

// TestTable_Shared: of tables that share a cache one is replaced in place, whoever is attached; further ones come and go, for every kind of client.
func TestTable_Shared(t *testing.T) {
	t.Parallel()
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	p := start(t, "--table", "name=a,file="+versioned(t, "a.npy", 1000, 1), "--table", "name=b,capacity=1200,file="+versioned(t, "b.npy", 1000, 1), "--codec", "none", "--gpu-memory", "64KiB",
		"--listen", socket, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0")
	attached, err := cache.Attach(context.Background(), socket, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	r := new(readers)
	r.acknowledged.Store(1)
	r.begin(p.gatherer("b"))
	r.begin(func(rows []int64, out []byte) error {
		return attached.Gather(context.Background(), cache.Request{Table: 1, Rows: rows, Out: out})
	})
	for version, rows := range map[int]int{2: 1100} {
		if out, failed := p.table("replace", "--table", "b", "--file", versioned(t, "b2.npy", rows, version)); out != "b replaced in place: 1,100 of 1,100 rows differed\n" {
			t.Errorf("%q, %q", out, failed)
		}
		r.acknowledged.Store(int64(version))
	}
	if out, failed := p.table("replace", "--table", "b", "--file", versioned(t, "b2.npy", 1100, 2)); out != "b replaced in place: 0 of 1,100 rows differed\n" {
		t.Errorf("%q, %q", out, failed)
	}
	for begun := r.batches.Load(); r.batches.Load() < begun+30 && r.err == nil; time.Sleep(time.Millisecond) {
	}
	r.end(t)
	// A further table.
	if out, failed := p.table("add", "--table", "name=c,gpu_memory=16KiB,file="+versioned(t, "c.npy", 100, 7)); out != "c added: 100 rows of 64 B\n" {
		t.Errorf("%q, %q", out, failed)
	}
	out := make([]byte, versionRow)
	further, err := cache.Attach(context.Background(), socket+"#c", cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer further.Close()
	if err := further.Gather(context.Background(), cache.Request{Rows: []int64{99}, Out: out}); err != nil {
		t.Error(err)
	}
	if version, err := versionOf(99, out); version != 7 || err != nil {
		t.Error(version, err)
	}
	if _, err := cache.Attach(context.Background(), socket+"#d", cache.AttachOptions{}); err == nil || !strings.Contains(err.Error(), `table ("d") must be one of 3: a, b, c`) {
		t.Error(err)
	}
	if _, err := cache.Attach(context.Background(), socket+"#2", cache.AttachOptions{}); err == nil || !strings.Contains(err.Error(), `table ("2") must be one of 3: a, b, c`) {
		t.Error(err)
	}
	if status, body := p.get("explain?table=c&row=99"); status != 200 {
		t.Error(status, body)
	}
	if got := p.inline("EXISTS c:99", "EXISTS 2:99", "DBSIZE"); got != ":1\r\n:1\r\n:2200\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
	if s := p.stats(); len(s.Tables) != 3 || s.GPUMemory != 80<<10 || *s.Clients != 2 {
		t.Errorf("%+v", s)
	}
	further.Close()
	// One that shares its cache goes, and comes again with other rows.
	attached.Close()
	if out, failed := p.table("drop", "--table", "a"); !strings.HasPrefix(out, "a dropped; its rows in host memory are kept until") {
		t.Errorf("%q, %q", out, failed)
	}
	if got := p.inline("GET a:1", "GET 0:1", "EXISTS b:1", "EXISTS 1:1"); got != "-ERR table (\"a\") must be one of 2: b, c\r\n-ERR table (\"0\") must be one of 2: b, c\r\n:1\r\n:1\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
	if status, body := p.get("explain?table=a&row=1"); status != 400 || body != "web: table (\"a\") must be one of 2: b, c\n" {
		t.Error(status, body)
	}
	if out, _, _ := runs(t, "explain", "--connect", socket, "--table", "b", "--rows", "1099"); !strings.Contains(out, "1099") {
		t.Errorf("explain: %q", out)
	}
	if out, failed := p.table("replace", "--table", "b", "--file", features(t, "wide.npy", 50, 3)); !strings.HasPrefix(out, "b replaced") {
		t.Errorf("%q, %q", out, failed)
	}
	if got := p.inline("GET b:50", "GET b:0", "GET 1:0"); got != "$-1\r\n$12\r\n\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\r\n$12\r\n\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\r\n+OK\r\n" {
		t.Errorf("%q", got)
	}
}
