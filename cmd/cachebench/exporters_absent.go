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
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return func() {}, nil
	}
	for _, signal := range []string{"TRACES", "METRICS"} {
		exporter := os.Getenv("OTEL_" + signal + "_EXPORTER")
		switch name := "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"; {
		case exporter == "none":
		case exporter != "":
			return nil, errNoExporters("OTEL_" + signal + "_EXPORTER")
		case os.Getenv(name) != "":
			return nil, errNoExporters(name)
		case os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "":
			return nil, errNoExporters("OTEL_EXPORTER_OTLP_ENDPOINT")
		}
	}
	return func() {}, nil
}

func errNoExporters(asked string) error {
	return fmt.Errorf("%s: this build of cachebench has no exporters of traces and metrics: make build makes one that has", asked)
}
