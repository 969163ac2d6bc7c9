package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// minTime is how long compress measures a speed; 0 for the default. Tests, which need no exact speeds, set it.
var minTime time.Duration

func newCompress() *cobra.Command {
	cfg := experiment.CompressConfig{MinTime: minTime}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compress",
		Short: "Compress a table with every codec, and with zstd and lz4 row by row, and compare them",
		Example: `  cachebench compress --features cora.npz
  cachebench compress --features embeddings.npy --cast bf16 --json`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cuda.Count() > 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "cachebench: speeds are of a processor; gpu-bench --cases hit-codecs,load measures those of the GPU")
			}
			results, err := withProgress(cmd, func(bar *progress) ([]experiment.CodecResult, error) {
				return experiment.Compress(cmd.Context(), cfg, bar)
			})
			if err != nil {
				return err
			}
			return printCompress(cmd.OutOrStdout(), results, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Features, "features", "", "table: FILE.npy or FILE.npz[:array] (default: the generated table of run)")
	f.StringVar(&cfg.Cast, "cast", "", "round the table's elements first: bf16 or f16")
	f.StringVar(&cfg.Codec, "codec", "", strings.Join(registry.Usage(), ", ")+", or zstd and lz4 for comparison (default: all)")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the sample and of the generated table")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

// printCompress prints the results; the first codec that does not round-trip is an error after that.
func printCompress(w io.Writer, results []experiment.CodecResult, asJSON bool) error {
	err := show(w, asJSON, results, report.Compress)
	for _, r := range results {
		if err == nil && r.RoundTrip != "ok" && r.RoundTrip != experiment.RoundTripLossy {
			err = fmt.Errorf("codec %s: %w: %s", r.Codec, errMismatch, r.RoundTrip)
		}
	}
	return err
}
