//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestRun_Telemetry: traces and metrics go where the configuration file says, whatever the environment says.
func TestRun_Telemetry(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.Method+" "+r.URL.Path]++
	}))
	defer receiver.Close()
	file := write(t, "c.yaml", fmt.Appendf(nil, "features: %s\ndevice: host\nbudget: 1KiB\nresp: :0\notlp_endpoint: %s\notlp_protocol: http/protobuf\ntraces_exporter: otlp\nmetrics_exporter: otlp\ntrace_ratio: 1\n",
		features(t, "f.npy", 100, 4), receiver.URL))
	cmd := command(t, "--config", file)
	cmd.Env = append(cmd.Env, "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_SAMPLER=always_off")
	p := launch(t, cmd)
	p.inline("GET f:3")
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status != 0 {
		t.Errorf("status %d\n%s", status, p.logged())
	}
	mu.Lock()
	defer mu.Unlock()
	if got["POST /v1/traces"] == 0 || got["POST /v1/metrics"] == 0 {
		t.Errorf("received %v\n%s", got, p.logged())
	}
}

// TestRun_TelemetryDown: with a receiver that is closed or hangs, by default few reads become spans, those that are lost are counted in metrics and status,
// and logged once.
func TestRun_TelemetryDown(t *testing.T) {
	t.Parallel()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	defer hangs.CloseClientConnections()
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, url := range map[string]string{"closed": closed.URL, "hangs": hangs.URL} {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, "--features", features(t, "f.npy", 1000, 4), "--device", "host", "--gpu-memory", "1KiB", "--resp", ":0", "--http", ":0", "--listen", "unix:"+t.TempDir()+"/s",
				"--otlp-endpoint", url)
			cmd.Env = append(cmd.Env, "OTEL_BSP_EXPORT_TIMEOUT=200", "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_TRACES_SAMPLER=", "TENSORCACHE_TRACE_RATE=")
			p := launch(t, cmd)
			begun := time.Now()
			for range 20 { // the ECHOs keep the GETs from becoming one Gather
				p.inline(slices.Repeat([]string{"GET f:3", "ECHO x"}, 500)...)
			}
			took := time.Since(begun).Seconds()
			p.until("lost spans are in the status", func() bool {
				out, _, _ := runs(t, "status", "--connect", p.socket(), "--json")
				return regexp.MustCompile(`"telemetry": "\d+ of \d+ spans were not delivered: `).MatchString(out)
			})
			p.until("all are counted", func() bool {
				_, metrics := p.get("metrics")
				sum := func(outcome string) (n float64) {
					m := regexp.MustCompile(`(?m)^tensorcache_telemetry_spans_total\{[^}]*tensorcache_outcome="` + outcome + `"[^}]*\} (\S+)$`).FindStringSubmatch(metrics)
					if m == nil {
						t.Fatalf("no spans that are %s:\n%s", outcome, metrics)
					}
					n, _ = strconv.ParseFloat(m[1], 64)
					return n
				}
				lost := sum("failed") + sum("dropped")
				if most := 4 * (20 + 10*(took+1)); sum("delivered") != 0 || lost > most+10 { // a trace is four spans; load and refresh are more
					t.Fatalf("%v spans lost, want at most %v", lost, most)
				}
				return lost > 0
			})
			if n := strings.Count(p.logged(), `msg="traces or metrics were not delivered"`); n != 1 {
				t.Errorf("logged %d times\n%s", n, p.logged())
			}
			p.signal(syscall.SIGTERM)
			if status := p.wait(); status != 0 {
				t.Errorf("status %d\n%s", status, p.logged())
			}
		})
	}
}
