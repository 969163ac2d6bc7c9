package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/telemetry"
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
	stderr := cmd.ErrOrStderr()
	if t.logLevel != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(t.logLevel)); err != nil {
			return nil, fmt.Errorf("--log-level (%q) must be debug, info, warn or error", t.logLevel)
		}
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	}
	running, err := telemetry.Start(cmd.Context(), telemetry.Options{Service: "cachebench", MetricsAddr: t.metricsAddr, Logger: cfg.Logger, Console: stderr})
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
