package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestRun_LameDuck: after SIGTERM /readyz says so while everything else is served, until the time is over or a second signal comes.
func TestRun_LameDuck(t *testing.T) {
	t.Parallel()
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "64KiB", "--lame-duck", "1h", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--log-format", "json")
	p.signal(syscall.SIGTERM)
	p.until("readiness ends", func() bool {
		status, body := p.get("readyz")
		return status == 503 && body == "tensorcached: ending\n"
	})
	if status, _ := p.get("healthz"); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	if status, body := p.get("explain?table=f&row=7"); status != 200 {
		t.Errorf("explain: %d %s", status, body)
	}
	if got := p.inline("EXISTS f:1"); got != ":1\r\n+OK\r\n" {
		t.Errorf("a new client: %q", got)
	}
	if _, body := p.get("metrics"); !strings.Contains(body, "tensorcache_service_draining{") || !regexp.MustCompile(`tensorcache_service_draining\{[^}]*\} 1\n`).MatchString(body) {
		t.Errorf("metrics: %s", body)
	}
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	messages := map[string]bool{}
	for line := range strings.Lines(p.logged()) {
		var record struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Level == "" {
			t.Errorf("%v: %s", err, line)
		}
		messages[record.Msg] = true
	}
	for _, want := range []string{"loaded", "ending", "ended at once"} {
		if !messages[want] {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// TestRun_Exemplars: a scraper that asks for OpenMetrics gets traces of reads that fell into the buckets of the histograms.
func TestRun_Exemplars(t *testing.T) {
	t.Parallel()
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "64KiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--traces-exporter", "console")
	p.inline("GET f:1")
	r, err := http.NewRequest("GET", p.http+"metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	for _, name := range []string{"gather", "stage"} {
		exemplar := regexp.MustCompile(`tensorcache_` + name + `_duration_seconds_bucket\{[^}]*\} \d+ # \{trace_id="[0-9a-f]{32}",span_id="[0-9a-f]{16}"\}`)
		p.until("an exemplar of "+name, func() bool { // a batch's span ends beside its reply
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			body, err := io.ReadAll(a.Body)
			return err == nil && exemplar.Match(body)
		})
	}
}

// TestRun_SnapshotFails: while snapshots fail, the program is not ready, and says why there and by its metrics.
func TestRun_SnapshotFails(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	p := start(t, "--features", features(t, "f.npy", 100, 4), "--gpu-memory", "64KiB", "--http", "127.0.0.1:0", "--listen", socket, "--snapshot", filepath.Join(folder, "f.snapshot"), "--snapshot-interval", "0")
	snapshot := func() string {
		_, stderr, _ := runs(t, "snapshot", "--connect", socket)
		return stderr
	}
	value := func(pattern string) string {
		t.Helper()
		_, body := p.get("metrics")
		m := regexp.MustCompile(pattern + " (\\S+)\n").FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("metrics lack %s:\n%s", pattern, body)
		}
		return m[1]
	}
	if status, body := p.get("readyz"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	if failed := snapshot(); !strings.Contains(failed, "no such file") {
		t.Errorf("%q", failed)
	}
	if status, body := p.get("readyz"); status != 503 || !strings.HasPrefix(body, "tensorcached: snapshot: cache: snapshot: ") {
		t.Errorf("%d %s", status, body)
	}
	if n := value(`tensorcache_snapshots_total\{[^}]*outcome="failed"[^}]*\}`); n != "1" {
		t.Errorf("%s failed", n)
	}
	if ready := value(`tensorcache_service_ready\{[^}]*\}`); ready != "0" {
		t.Errorf("ready is %s", ready)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	if failed := snapshot(); failed != "" {
		t.Errorf("%q", failed)
	}
	if status, body := p.get("readyz"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if value(`tensorcache_build_info\{[^}]*go="go[^}]*version="[^}]*\}`) != "1" || value(`tensorcache_service_tables\{[^}]*\}`) != "1" || value(`tensorcache_process_files_open\{[^}]*\}`) == "0" {
		t.Error("what the service says of itself")
	}
	value(`tensorcache_http_duration_seconds_count\{[^}]*http_response_status_code="503",http_route="/readyz"[^}]*\}`)
}
