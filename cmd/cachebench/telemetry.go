package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// telemetryFlags say how a command is observed. Exporters are named by the environment: OTEL_*.
type telemetryFlags struct {
	metricsAddr, logLevel string
}

func (t *telemetryFlags) add(f *pflag.FlagSet) {
	f.StringVar(&t.metricsAddr, "metrics-addr", "", "let Prometheus scrape [HOST]:PORT/metrics while it runs; without HOST from this machine only")
	f.StringVar(&t.logLevel, "log-level", "", "print what the caches log from this level on: debug, info, warn or error")
}

// start sets up what the flags and the environment say, and has the caches of cfg use it. end says on stderr what could not be
// delivered.
func (t *telemetryFlags) start(cmd *cobra.Command, cfg *experiment.Config) (end func(), err error) {
	if t.logLevel != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(t.logLevel)); err != nil {
			return nil, fmt.Errorf("--log-level (%q) must be debug, info, warn or error", t.logLevel)
		}
		cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	}
	return startExporters(cmd, t.metricsAddr, cfg)
}
