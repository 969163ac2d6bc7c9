//go:build linux

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
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
