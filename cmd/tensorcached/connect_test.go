//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestConnect_Commands: every command does to a running tensorcached what it says.
func TestConnect_Commands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := "unix:" + dir + "/s"
	p := start(t, "--features", features(t, "users.npy", 1000, 16), "--codec", "none", "--gpu-memory", "16KiB", "--listen", socket, "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0",
		"--refresh-interval", "0", "--snapshot", dir+"/snap")
	ask := func(name string, args ...string) string {
		t.Helper()
		out, stderr, status := runs(t, append([]string{name, "--connect", socket}, args...)...)
		if status != 0 || stderr != "" {
			t.Fatalf("%s %q: status %d, %s", name, args, status, stderr)
		}
		return out
	}
	p.inline("MGET users:1 users:2 users:999")
	var s struct {
		Clients, Lookups, Hits *int64
		Process                int
		GPUMemory              int64 `json:"gpu_memory"`
		Tables                 []struct {
			Name       string
			Rows       int64
			RowBytes   int64  `json:"row_bytes"`
			RowsCached *int64 `json:"rows_cached"`
		}
	}
	status := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(ask("status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
	}
	status()
	if s.Clients == nil || *s.Clients != 0 || *s.Lookups != 3 || s.Hits == nil || s.Process != p.cmd.Process.Pid || len(s.Tables) != 1 || s.Tables[0].Name != "users" ||
		s.Tables[0].Rows != 1000 || s.Tables[0].RowBytes != 64 || *s.Tables[0].RowsCached < 100 {
		t.Errorf("status: %+v", s)
	}
	cached := *s.Tables[0].RowsCached
	if out := ask("status"); !strings.Contains(out, "| users | int32 | none  | 1,000 | 64 B") || !strings.Contains(out, "serving, 0 attached") || strings.Contains(out, "not allocated") {
		t.Errorf("status:\n%s", out)
	}
	var e []struct {
		Row    int64
		Cached bool
	}
	for _, name := range []string{"users", "0"} {
		if err := json.Unmarshal([]byte(ask("explain", "--table", name, "--rows", "0,998-999", "--json")), &e); err != nil || len(e) != 3 || e[2].Row != 999 || e[2].Cached || !e[0].Cached {
			t.Errorf("explain: %+v, %v", e, err)
		}
	}
	if out := ask("explain", "--table", "users", "--rows", "999"); !strings.Contains(out, "| 999 | host: ") {
		t.Errorf("explain:\n%s", out)
	}
	ask("gpu-memory", "--bytes", "8KiB")
	if status(); s.GPUMemory != 8<<10 || *s.Tables[0].RowsCached >= cached {
		t.Errorf("after budget: %+v, %d rows cached", s, *s.Tables[0].RowsCached)
	}
	ask("gpu-memory", "--bytes", "1MiB")
	if out := ask("status"); !regexp.MustCompile(`: [0-9.]+ KiB of rows, 5\d KiB free, of 1\.0 MiB, of which 9\d\d KiB are not allocated: all rows fit in less\n`).MatchString(out) {
		t.Errorf("status of a budget that exceeds the rows:\n%s", out)
	}
	before := p.stats().Refresh.Cycles
	ask("refresh")
	if n := p.stats().Refresh.Cycles; n <= before {
		t.Errorf("%d cycles after refresh, %d before", n, before)
	}
	ask("snapshot")
	ask("snapshot", "--file", dir+"/other")
	for _, name := range []string{"snap", "other"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() < 64 {
			t.Errorf("snapshot %s: %v", name, err)
		}
	}
	ask("drain")
	if code, body := p.get("readyz"); code != 503 || body != "tensorcached: draining\n" {
		t.Errorf("after drain, readyz: %d %q", code, body)
	}
	if code, _ := p.get("stats"); code != 200 {
		t.Errorf("after drain, stats: %d", code)
	}
}

// TestConnect_Stopped: no command waits for a tensorcached that is stopped, and the error names it; the long ones wait for 10 s, not for their --timeout.
func TestConnect_Stopped(t *testing.T) {
	t.Parallel()
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--listen", "unix:"+t.TempDir()+"/s")
	p.signal(syscall.SIGSTOP)
	owner := fmt.Sprintf("owner at %s (process %d) has not answered hello ", p.socket(), p.cmd.Process.Pid)
	var all sync.WaitGroup
	for _, c := range []struct {
		want string
		args []string
	}{
		{owner + "in time: context deadline exceeded", []string{"status", "--timeout", "300ms"}},
		{owner + "within 10s: it gives no sign of life: stopped, or out of file descriptors", []string{"refresh"}},
		{owner + "within 10s: it gives no sign of life: stopped, or out of file descriptors", []string{"drain"}},
	} {
		all.Go(func() {
			_, stderr, status := runs(t, append(c.args, "--connect", p.socket())...)
			if status != 1 || !strings.HasPrefix(stderr, "tensorcached: --connect: ") || !strings.HasSuffix(stderr, c.want+"\n") {
				t.Errorf("%q: status %d, stderr %q", c.args, status, stderr)
			}
		})
	}
	all.Wait()
}

func TestConnect_BadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := "unix:" + dir + "/s"
	start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "1KiB", "--listen", socket)
	for want, args := range map[string][]string{
		"--connect (unix:/nowhere) must be the --listen of a running tensorcached: nobody listens there": {"status", "--connect", "unix:/nowhere"},
		`status: argument ("x") must be the value of a flag`:                                             {"status", "x"},
		`required flag(s) "rows" not set`:                                                                {"explain", "--connect", socket},
		`--rows ("x") must be row numbers`:                                                               {"explain", "--connect", socket, "--rows", "x"},
		`--table ("g") must be one of 1: f`:                                                              {"explain", "--connect", socket, "--rows", "1", "--table", "g"},
		"cache: row numbers out of range: row number (100) ":                                             {"explain", "--connect", socket, "--rows", "100"},
		`--bytes ("x") must be a size such as 64MiB`:                                                     {"gpu-memory", "--connect", socket, "--bytes", "x"},
		"cache: budget too small":                                                                        {"gpu-memory", "--connect", socket, "--bytes", "10"},
		"snapshot: --file must be given: tensorcached runs without --snapshot":                           {"snapshot", "--connect", socket},
		"--file (x) must be an absolute path":                                                            {"snapshot", "--connect", socket, "--file", "x"},
	} {
		stdout, stderr, status := runs(t, args...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "tensorcached: "+want) {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want %s", args, status, stdout, stderr, want)
		}
	}
}
