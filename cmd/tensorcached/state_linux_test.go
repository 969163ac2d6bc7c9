package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
)

// TestRun_State: with --state the next process has the rows of the one before with updates, after SIGKILL and after SIGTERM, and keeps no memory of tables that are gone.
func TestRun_State(t *testing.T) {
	t.Parallel()
	state, err := os.MkdirTemp("/dev/shm", "tensorcache-test-")
	var on unix.Statfs_t
	if err != nil || unix.Statfs(state, &on) != nil || on.Type != unix.TMPFS_MAGIC {
		t.Skipf("/dev/shm must be a tmpfs that can be written to: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
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
	folders := func() []string {
		all, err := filepath.Glob(filepath.Join(state, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
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
