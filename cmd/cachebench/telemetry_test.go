//go:build !noexporters

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// observed runs the command with variables of the environment added, which must succeed.
func observed(t *testing.T, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("cachebench %s: %v, stderr %q", strings.Join(args, " "), err, e.String())
	}
	return o.String(), e.String()
}

// TestTelemetry_Undelivered has exporters fail in every way: the run succeeds with the same result, in bounded time, and what was lost
// is said.
func TestTelemetry_Undelivered(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(3 * time.Minute):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	down := httptest.NewServer(nil)
	down.Close()
	args := append([]string{"run", "--json"}, small...)
	plain := decode[experiment.Result](t, succeed(t, args...))
	for name, url := range map[string]string{"slow": slow.URL, "refusing": refusing.URL, "down": down.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}, args...)
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("took %v", took)
			}
			res := decode[experiment.Result](t, stdout)
			if a, b := timeless(&res), timeless(&plain); a.Results != b.Results || a.Results.Misses == 0 {
				t.Errorf("results %+v, want %+v", a.Results, b.Results)
			}
			if !regexp.MustCompile(`(?m)^cachebench: telemetry: (\d+) of (\d+) spans were not delivered: .+$`).MatchString(stderr) ||
				!regexp.MustCompile(`(?m)^cachebench: telemetry: metrics were not delivered: .+$`).MatchString(stderr) {
				t.Errorf("stderr %q", stderr)
			}
		})
	}
}

// TestTelemetry_Environment tries settings of the environment that need no Collector.
func TestTelemetry_Environment(t *testing.T) {
	args := append([]string{"run", "--json"}, small...)
	for name, c := range map[string]struct {
		env    []string
		stderr string
	}{
		"none":      {[]string{"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, `^$`},
		"disabled":  {[]string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, `^$`},
		"console":   {[]string{"OTEL_TRACES_EXPORTER=console"}, `(?s)"Name":"gather generated".*"Name":"refresh"|"Name":"gather generated"`},
		"unsampled": {[]string{"OTEL_TRACES_EXPORTER=console", "OTEL_TRACES_SAMPLER=always_off"}, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := observed(t, c.env, args...)
			decode[experiment.Result](t, stdout)
			if !regexp.MustCompile(c.stderr).MatchString(stderr) {
				t.Errorf("stderr %.500q does not match %s", stderr, c.stderr)
			}
		})
	}
	cmd := command(t, args...)
	cmd.Env = append(cmd.Env, "OTEL_TRACES_EXPORTER=nonsense")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.HasPrefix(stderr.String(), "cachebench: telemetry: traces: ") {
		t.Errorf("an exporter that there is not: %v, stderr %q", err, stderr.String())
	}
	refuse(t, `--log-level ("loud") must be debug, info, warn or error`, "run", "--log-level", "loud")
	if _, stderr := observed(t, nil, append(args, "--log-level", "info")...); !strings.Contains(stderr, "msg=loaded cache=cachebench") {
		t.Errorf("log %q", stderr)
	}
}

// TestExplain_Rows holds what is said of rows against each other and against bad input.
func TestExplain_Rows(t *testing.T) {
	rows := decode[[]experiment.Explained](t, succeed(t, append([]string{"run", "--explain", "0-1998, 1999", "--json"}, small...)...))
	res := run(t, small...)
	if len(rows) != 2000 {
		t.Fatalf("%d rows", len(rows))
	}
	cached := int64(0)
	for i, e := range rows {
		if e.Row != int64(i) || e.Policy == nil || e.StoredBytes < 1 || e.SlotBytes < e.StoredBytes || (e.Where == "host") != (e.Reason != "") || (e.Where == "slab") != (e.Offset != nil) {
			t.Fatalf("%+v", e)
		}
		if e.Where == "slab" {
			cached++
		}
	}
	if cached != res.Cache.RowsCached {
		t.Errorf("%d rows are cached, the run says %d", cached, res.Cache.RowsCached)
	}
	if table := succeed(t, append([]string{"run", "--explain", "7"}, small...)...); !strings.Contains(table, "│   7 │") {
		t.Errorf("table:\n%s", table)
	}
	refuse(t, `--explain (2000) must be 0 to 1999 of table generated`, append([]string{"run", "--explain", "2000"}, small...)...)
	for _, bad := range []string{"x", "5-3", "", "1,,2", "1-"} {
		if _, _, status := cachebench(t, "run", "--explain="+bad); status != 1 {
			t.Errorf("--explain=%s: status %d", bad, status)
		}
	}
	refuse(t, `--explain ("0-10000") must be at most 10000 rows in all`, "run", "--explain", "0-10000")
}
