package telemetry

import (
	"context"
	"strings"
	"testing"
)

// TestStart_BadSettings names what is wrong.
func TestStart_BadSettings(t *testing.T) {
	for name, c := range map[string]struct{ env, value, addr, want string }{
		"exporter": {"OTEL_TRACES_EXPORTER", "nonsense", "", `telemetry: traces: OTEL_TRACES_EXPORTER ("nonsense"): `},
		"metrics":  {"OTEL_METRICS_EXPORTER", "nonsense", "", `telemetry: metrics: OTEL_METRICS_EXPORTER ("nonsense"): `},
		"protocol": {"OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", "", `telemetry: traces: OTEL_EXPORTER_OTLP_PROTOCOL ("smoke"): `},
		"address":  {"OTEL_TRACES_EXPORTER", "none", "localhost:99999", `telemetry: address of metrics ("localhost:99999"): `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.env, c.value)
			if name == "protocol" {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			}
			if _, err := Start(context.Background(), Options{MetricsAddr: c.addr}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %s…", err, c.want)
			}
		})
	}
}
