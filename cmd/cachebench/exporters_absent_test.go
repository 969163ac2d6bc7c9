//go:build noexporters

package main

import (
	"strings"
	"testing"
)

// TestExporters_Absent: a build without exporters runs, and refuses what would need one by name.
func TestExporters_Absent(t *testing.T) {
	succeed(t, append([]string{"run"}, small...)...)
	for want, env := range map[string][]string{
		"OTEL_TRACES_EXPORTER: this build of cachebench has no exporters": {"OTEL_TRACES_EXPORTER=otlp"},
		"OTEL_EXPORTER_OTLP_ENDPOINT: this build":                         {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"},
		"--metrics-addr: this build":                                      {"--metrics-addr=0"},
	} {
		args := append([]string{"run"}, small...)
		if strings.HasPrefix(env[0], "-") {
			args, env = append(args, env...), nil
		}
		cmd := command(t, args...)
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	}
}
