//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
)

// TestRun_Attached: a process that is attached reads the rows, is counted, and sees what clients of Redis change; drain waits for it, but SIGTERM
// does not, as it reads on when the owner has ended.
func TestRun_Attached(t *testing.T) {
	t.Parallel()
	socket := "unix:" + t.TempDir() + "/s"
	cmd := command(t, "--features", features(t, "users.npy", 1000, 16), "--device", "host", "--gpu-memory", "16KiB", "--listen", socket, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--drain-timeout", "1h", "--log-level", "warn")
	cmd.Env = append(cmd.Env, "TENSORCACHED_ADMIN_PASSWORD=secret")
	p := launch(t, cmd)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := cache.Attach(ctx, socket, cache.AttachOptions{Name: "trainer"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := make([]byte, 3*64)
	gather := func() {
		t.Helper()
		if err := c.Gather(ctx, cache.Request{Rows: []int64{7, 999, 0}, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	gather()
	for i, row := range []uint32{7, 999, 0} {
		if got := binary.LittleEndian.Uint32(out[64*i:]); got != 16*row {
			t.Errorf("row %d begins with %d", row, got)
		}
	}
	if got := p.inline("AUTH admin secret", "TC.SET users 7 "+strings.Repeat("v", 64)); got != "+OK\r\n+OK\r\n+OK\r\n" {
		t.Fatalf("TC.SET: %q", got)
	}
	if gather(); !bytes.Equal(out[:64], bytes.Repeat([]byte("v"), 64)) {
		t.Errorf("after TC.SET: %q", out[:64])
	}
	p.until("its lookups are counted", func() bool { s := p.stats(); return *s.Clients == 1 && s.Lookups == 6 })
	if out, _, _ := runs(t, "status", "--connect", socket); !strings.Contains(out, "1 attached\n") || !strings.Contains(out, "attached: trainer, process ") ||
		!strings.Contains(out, "s: 6 lookups, ") {
		t.Errorf("status:\n%s", out)
	}
	// What is the owner's configuration cannot be changed from here.
	if err := c.SetRefresh(cache.RefreshOptions{MaxChurn: 0.5}); !errors.Is(err, cache.ErrOptions) {
		t.Errorf("SetRefresh: %v", err)
	}
	if err := c.SetPolicy(admission.NewFrequency()); !errors.Is(err, cache.ErrOptions) {
		t.Errorf("SetPolicy: %v", err)
	}
	if _, stderr, status := runs(t, "drain", "--connect", socket, "--timeout", "300ms"); status != 1 || stderr == "" {
		t.Errorf("drain with an attached process: status %d, %q", status, stderr)
	}
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 || strings.Contains(p.logged(), "cut off") {
		t.Errorf("status %d\n%s", status, p.logged())
	}
	if gather(); !bytes.Equal(out[:64], bytes.Repeat([]byte("v"), 64)) {
		t.Errorf("after the owner's end: %q", out[:64])
	}
}

// TestRun_MemoryHeld: a start that lacks memory says which processes still hold that of the owner before, and how much.
func TestRun_MemoryHeld(t *testing.T) {
	t.Parallel()
	socket := "unix:" + t.TempDir() + "/s"
	file := features(t, "users.npy", 50_000, 16)
	p := start(t, "--features", file, "--gpu-memory", "16KiB", "--listen", socket)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := cache.Attach(ctx, socket, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	again := []string{"--device", "host", "--table", "file=" + file + ",capacity=100000000000000", "--listen", socket + "2"}
	if _, stderr, status := runs(t, again...); status != 1 || !strings.Contains(stderr, "may take") || strings.Contains(stderr, "(process "+strconv.Itoa(os.Getpid())+")") {
		t.Errorf("beside the owner: status %d, stderr %q", status, stderr)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	_, stderr, status := runs(t, again...)
	want := regexp.MustCompile(`still hold [0-9.]+ [kMG]?B of its memory, until they attach to the next: .*\(process ` + strconv.Itoa(os.Getpid()) + `\) [0-9.]+ [kMG]?B.*; end them first, or allow memory for both copies`)
	if status != 1 || !strings.Contains(stderr, "may take") || !want.MatchString(stderr) {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}

// TestRun_Resident: processes that are attached and clients of Redis read a resident table beside a cached one, and have it moved to longer slots.
func TestRun_Resident(t *testing.T) {
	t.Parallel()
	socket := "unix:" + t.TempDir() + "/s"
	p := start(t, "--table", "file="+features(t, "users.npy", 1000, 16)+",codec=none,resident=32,max_target=48", "--features", features(t, "items.npy", 100, 16),
		"--device", "host", "--gpu-memory", "80KiB", "--listen", socket, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := cache.Attach(ctx, socket, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for table, name := range []string{"users", "items"} {
		row := make([]byte, 64)
		if err := c.Gather(ctx, cache.Request{Table: table, Rows: []int64{77}, Out: row}); err != nil || binary.LittleEndian.Uint32(row) != 16*77 {
			t.Errorf("%s: %v, %x", name, err, row)
		}
		if got := p.inline("GET " + name + ":77"); got != "$64\r\n"+string(row)+"\r\n+OK\r\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if err := c.Retarget(ctx, 0, 48); err != nil {
		t.Fatal(err)
	}
	if err := c.Retarget(ctx, 0, 64); !errors.Is(err, cache.ErrBudget) {
		t.Errorf("slots longer than memory was taken for: %v", err)
	}
	s, err := c.Stats()
	if r := s.Tables[0].Resident; err != nil || r == nil || r.TargetBytes != 48 || r.MaxTargetBytes != 48 || r.OverflowRows != 1000 || s.Tables[1].Resident != nil {
		t.Errorf("%v, %+v", err, r)
	}
}
