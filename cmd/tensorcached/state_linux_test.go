package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
)

// TestRun_State: with --state the next process has the rows of the one before with updates, after SIGKILL and after SIGTERM, and keeps no memory of tables that are gone.
func TestRun_State(t *testing.T) {
	t.Parallel()
	state := tmpfstest.Folder(t)
	args := []string{"--features", features(t, "users.npy", 1000, 16), "--device", "host", "--gpu-memory", "64KiB", "--listen", "unix:" + filepath.Join(t.TempDir(), "s"), "--state", state}
	p := start(t, args...)
	c, err := cache.Attach(context.Background(), p.socket(), cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 16)
	if err := c.Update(context.Background(), 0, []int64{17}, want); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p.signal(s)
		p.wait()
		p = start(t, args...)
		p.until("the log says that the table is taken over", func() bool { return strings.Contains(p.logged(), "state: table is taken over") })
		p.until("the client is attached again", func() bool { all, err := c.Stats(); return err == nil && all.OwnerError == "" })
		got := make([]byte, len(want))
		if err := c.Gather(context.Background(), cache.Request{Rows: []int64{17}, Out: got}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("after %v the row is %v, error %v", s, got, err)
		}
	}
	folders := func() []string { return statefolder.Within(state) }
	before := folders()
	if out, failed := p.table("replace", "--table", "users", "--file", features(t, "others.npy", 1000, 16)); failed != "" {
		t.Fatal(out, failed)
	}
	if after := folders(); len(after) != 1 || after[0] == before[0] {
		t.Errorf("folders are %v, and were %v", after, before)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	p = start(t, args...)
	if all := folders(); len(all) != 1 {
		t.Errorf("folders are %v\n%s", all, p.logged())
	}
}

// TestRun_StateOfChanges: an update of a table that has come or changed while the program ran is there after SIGKILL and a start with what the configuration is then. Rows of
// one file are never taken for those of another.
func TestRun_StateOfChanges(t *testing.T) {
	t.Parallel()
	a, b, fewer := features(t, "a.npy", 1000, 16), features(t, "b.npy", 1000, 16), features(t, "c.npy", 900, 16)
	table := func(fields string) string { return "- {name: t, " + fields + "}\n" }
	const empty = "dtype: float32, columns: 16, gpu_memory: 64KiB, capacity: "
	for _, c := range []struct {
		name, first, second, table string
		command                    []string // instead of SIGHUP
		restart                    string   // the configuration of the next start if it is not the second
		lost                       bool
	}{
		{name: "replaced", first: table("file: " + a), second: table("file: " + b), table: "t"},
		{name: "fewer rows", first: table("file: " + a), second: table("file: " + fewer), table: "t"},
		{name: "added", first: table("file: " + a), second: table("file: "+a) + "- {name: u, file: " + b + "}\n", table: "u"},
		{name: "capacity", first: table(empty + "1000"), second: table(empty + "2000"), table: "t"},
		{name: "codec", first: table("codec: none, gpu_memory: 64KiB, file: " + a), second: table("codec: ibp4, gpu_memory: 64KiB, file: " + a), table: "t"},
		{name: "in place", first: table("file: " + a), second: table("file: " + b), table: "t", command: []string{"replace", "--table", "t", "--file", b, "--in-place"}},
		{name: "in place back", first: table("file: " + a), second: table("file: " + b), table: "t", command: []string{"replace", "--table", "t", "--file", b, "--in-place"},
			restart: table("file: " + a), lost: true},
		{name: "added again", first: table("file: "+a) + "- {name: u, file: " + b + "}\n", second: table("file: "+a) + "- {name: u, file: " + b + "}\n", table: "u", command: []string{"drop", "--table", "u"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, conf, socket := tmpfstest.Folder(t), filepath.Join(t.TempDir(), "c.yaml"), "unix:"+filepath.Join(t.TempDir(), "s")
			args := []string{"--config", conf, "--gpu-memory", "64KiB", "--listen", socket, "--state", state}
			configure := func(tables string) {
				if err := os.WriteFile(conf, []byte("tables:\n"+tables), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			configure(c.first)
			p := start(t, args...)
			if configure(c.second); c.command == nil {
				p.signal(syscall.SIGHUP)
				p.until("reloaded", func() bool { return strings.Contains(p.logged(), "reloaded") })
			} else if out, failed := p.table(c.command...); failed != "" {
				t.Fatal(out, failed)
			}
			if c.name == "added again" {
				if out, failed := p.table("add", "--table", "name=u,file="+b); failed != "" {
					t.Fatal(out, failed)
				}
			}
			want, row := bytes.Repeat([]byte{1, 2, 3, 4}, 16), int64(17)
			if c.name == "capacity" {
				row = 0
			}
			attach := func() (*cache.Cache, int) {
				at, err := cache.Attach(t.Context(), socket+"#"+c.table, cache.AttachOptions{})
				if err != nil {
					t.Fatalf("%v\n%s", err, p.logged())
				}
				s, err := at.Stats()
				if err != nil {
					t.Fatal(err)
				}
				return at, slices.IndexFunc(s.Tables, func(one cache.TableStats) bool { return one.Name == c.table })
			}
			at, n := attach()
			if err := at.Update(t.Context(), n, []int64{row}, want); err != nil {
				t.Fatal(err)
			}
			at.Close()
			p.signal(syscall.SIGKILL)
			p.wait()
			if c.restart != "" {
				configure(c.restart)
			}
			p = start(t, args...)
			at, n = attach()
			defer at.Close()
			got := make([]byte, len(want))
			if err := at.Gather(t.Context(), cache.Request{Table: n, Rows: []int64{row}, Out: got}); err != nil || bytes.Equal(got, want) == c.lost {
				t.Errorf("row %v, error %v\n%s", got, err, p.logged())
			}
			if c.name != "in place back" {
				return
			}
			// Memory of a table that cannot be added is given back.
			before := statefolder.Within(state)
			for _, table := range []string{"name=big,gpu_memory=200,file=" + a, "name=big,gpu_memory=64KiB,file=" + a + "none"} {
				if _, failed := p.table("add", "--table", table); failed == "" {
					t.Errorf("%s was added", table)
				}
			}
			if after := statefolder.Within(state); !slices.Equal(before, after) {
				t.Errorf("folders %v, before %v", after, before)
			}
		})
	}
}

// TestRun_StateAlone: the folder of --state is this user's alone, and one process at a time has it.
func TestRun_StateAlone(t *testing.T) {
	t.Parallel()
	state := tmpfstest.Folder(t)
	args := []string{"--table", "name=t,dtype=float32,columns=4,capacity=10", "--device", "host", "--gpu-memory", "4KiB", "--http", "127.0.0.1:0", "--state", state}
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := runs(t, args...); status == 0 || !strings.Contains(stderr, "of this user") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, args...)
	taken, err := filelock.Try(filepath.Join(state, "lock"))
	if err == nil {
		taken.Close()
	}
	if !filelock.Held(err) {
		t.Errorf("the folder is not locked: %v", err)
	}
}
