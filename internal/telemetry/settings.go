package telemetry

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// Settings take the place of OTEL_* variables and TENSORCACHE_TRACE_RATE, which Start sets for the process. Fields that are "" leave them as they are. There is none for credentials:
// command lines and configuration files are read by others; OTEL_EXPORTER_OTLP_HEADERS has them.
type Settings struct {
	// Traces and Metrics are exporters: otlp, console or none. Default: otlp if there is an endpoint.
	Traces, Metrics string
	// Endpoint is the URL of an OTLP receiver, to which http/protobuf adds /v1/traces and /v1/metrics.
	Endpoint string
	// Protocol is grpc or http/protobuf.
	Protocol string
	// Ratio is the share of the traces beginning in this process that are sampled, 0 to 1.
	Ratio string
	// Rate is the most traces a second that begin in a cache of this process, before Ratio is applied; 0: no limit. Default: TENSORCACHE_TRACE_RATE,
	// else DefaultTraceRate.
	Rate string
}

// variables are the settings that are given, by the variables that they set.
func (s *Settings) variables() map[string]string {
	set := map[string]string{
		"OTEL_TRACES_EXPORTER": s.Traces, "OTEL_METRICS_EXPORTER": s.Metrics, "OTEL_EXPORTER_OTLP_ENDPOINT": s.Endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": s.Protocol,
		"OTEL_TRACES_SAMPLER_ARG": s.Ratio, "TENSORCACHE_TRACE_RATE": s.Rate,
	}
	if s.Ratio != "" {
		set["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
	}
	for name, value := range set {
		if value == "" {
			delete(set, name)
		}
	}
	return set
}

// Validate returns an error that names all settings out of range, by what the caller calls them.
func (s *Settings) Validate(name func(field string) string) error {
	var f faults.List
	exporter := func(field, value string) {
		f.If(value != "" && !slices.Contains([]string{"otlp", "console", "none"}, value), "%s (%q) must be otlp, console or none", name(field), value)
	}
	exporter("Traces", s.Traces)
	exporter("Metrics", s.Metrics)
	f.If(s.Protocol != "" && s.Protocol != "grpc" && s.Protocol != "http/protobuf", "%s (%q) must be grpc or http/protobuf", name("Protocol"), s.Protocol)
	if s.Endpoint != "" {
		switch u, err := url.Parse(s.Endpoint); {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			f.Addf("%s (%q) must be a URL such as http://localhost:4318", name("Endpoint"), s.Endpoint)
		case u.User != nil:
			f.Addf("%s (%s) must have no password: OTEL_EXPORTER_OTLP_HEADERS has credentials", name("Endpoint"), u.Redacted())
		}
	}
	if s.Ratio != "" {
		r, err := strconv.ParseFloat(s.Ratio, 64)
		f.If(err != nil || !(r >= 0 && r <= 1), "%s (%q) must be a share of the traces, 0 to 1", name("Ratio"), s.Ratio)
	}
	if s.Rate != "" {
		if _, err := parseRate(s.Rate); err != nil {
			f.Addf("%s %w", name("Rate"), err)
		}
	}
	return f.Err()
}

// apply sets the variables.
func (s *Settings) apply() error {
	set := s.variables()
	// A variable of one signal counts more than that of both, and is meant to be replaced, too.
	for _, name := range []string{"ENDPOINT", "PROTOCOL"} {
		if _, ok := set["OTEL_EXPORTER_OTLP_"+name]; !ok {
			continue
		}
		for _, signal := range []string{"TRACES", "METRICS"} {
			if err := os.Unsetenv(strings.Join([]string{"OTEL_EXPORTER_OTLP", signal, name}, "_")); err != nil {
				return fmt.Errorf("telemetry: %w", err)
			}
		}
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("telemetry: %w", err)
		}
	}
	return nil
}
