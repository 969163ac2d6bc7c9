//go:build !noexporters

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/telemetry"
)

// startExporters starts the exporters that the environment names, and the endpoint for Prometheus.
func startExporters(cmd *cobra.Command, metricsAddr string, cfg *experiment.Config) (end func(), err error) {
	stderr := cmd.ErrOrStderr()
	running, err := telemetry.Start(cmd.Context(), telemetry.Options{Service: "cachebench", MetricsAddr: metricsAddr, Logger: cfg.Logger, Console: stderr})
	if err != nil {
		return nil, err
	}
	if url := running.MetricsURL(); url != "" {
		fmt.Fprintln(stderr, "metrics at", url)
	}
	cfg.Closing, cfg.TraceRate = running.Flush, running.TraceRate()
	return func() {
		if err := running.Close(); err != nil { // the command succeeds all the same
			fmt.Fprintln(stderr, "cachebench:", strings.ReplaceAll(err.Error(), "\n", "\ncachebench: "))
		}
	}, nil
}
