//go:build noexporters

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// startExporters refuses what needs exporters: they and gRPC are two thirds of what the command depends on, so the build of make run has none.
func startExporters(_ *cobra.Command, metricsAddr string, _ *experiment.Config) (end func(), err error) {
	if metricsAddr != "" {
		return nil, errNoExporters("--metrics-addr")
	}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		exporter := name == "OTEL_TRACES_EXPORTER" || name == "OTEL_METRICS_EXPORTER"
		if exporter && value != "" && value != "none" || strings.HasPrefix(name, "OTEL_EXPORTER_OTLP_") && strings.HasSuffix(name, "ENDPOINT") && value != "" {
			return nil, errNoExporters(name)
		}
	}
	return func() {}, nil
}

func errNoExporters(asked string) error {
	return fmt.Errorf("%s: this build of cachebench has no exporters of traces and metrics: make build makes one that has", asked)
}
