//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestRun_GPU: the program on a GPU, with its memory shared, over all listeners; its plan has device memory and page-locked memory.
func TestRun_GPU(t *testing.T) {
	gputest.Require(t)
	dir := t.TempDir()
	args := []string{"--features", features(t, "users.npy", 10_000, 16), "--device", "cuda", "--gpu-memory", "64KiB", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--listen", "unix:" + dir + "/s", "--snapshot", filepath.Join(dir, "snapshot"), "--host-tier", "packed"}
	if out, stderr, status := runs(t, append(args, "--check")...); status != 0 || !strings.Contains(out, "page-locked host") || !strings.Contains(out, "| device ") {
		t.Errorf("--check: status %d, %s\n%s", status, stderr, out)
	}
	if out, _, status := runs(t, append(args, "--check", "--gpu-memory", "100TiB")...); status != 1 || !strings.Contains(out, "problem: GPU 0 (") {
		t.Errorf("--check of too much: status %d\n%s", status, out)
	}
	p := launch(t, command(t, args...))
	if !strings.Contains(p.ready, " of cuda, ") {
		t.Errorf("ready: %s", p.ready)
	}
	for _, row := range []string{"1", "9999"} {
		if got := p.inline("GET users:" + row); !strings.HasPrefix(got, "$64\r\n"+map[string]string{"1": "\x10\x00\x00\x00", "9999": "\xf0\x70\x02\x00"}[row]) {
			t.Errorf("row %s: %q", row, got)
		}
	}
	if s := p.stats(); s.Lookups != 2 || s.GPUMemory != 64<<10 || s.Tables[0].RowsCached == 0 {
		t.Errorf("%+v", s)
	}
	if out, stderr, status := runs(t, "gpu-memory", "--connect", "unix:"+dir+"/s", "--bytes", "32KiB"); status != 0 {
		t.Errorf("budget: %s%s", out, stderr)
	}
	if s := p.stats(); s.GPUMemory != 32<<10 {
		t.Errorf("budget %d", s.GPUMemory)
	}
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d\n%s", status, p.logged())
	}
	p = launch(t, command(t, args...))
	if s := p.stats(); s.RestoredRows == 0 {
		t.Errorf("after a restart: %+v", s)
	}
}
