package telemetry

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
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

// TestStart_Settings: settings take the place of the environment's variables, those of one signal among them.
func TestStart_Settings(t *testing.T) {
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_SAMPLER",
		"OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"} {
		t.Setenv(name, "smoke") // and put back
	}
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)
	for ratio, sampled := range map[string]bool{"0": false, "1": true} {
		var out bytes.Buffer
		s, err := Start(context.Background(), Options{Console: &out, Settings: Settings{Traces: "console", Metrics: "none", Endpoint: "http://127.0.0.1:1", Protocol: "grpc", Ratio: ratio}})
		if err != nil {
			t.Fatal(err)
		}
		_, span := otel.Tracer("test").Start(context.Background(), "spoken")
		span.End()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(out.String(), "spoken"); got != sampled {
			t.Errorf("ratio %s: exported %v\n%s", ratio, got, out.String())
		}
	}
	for name, want := range map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
