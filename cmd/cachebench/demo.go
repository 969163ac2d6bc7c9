package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
)

func newDemo() *cobra.Command {
	var cfg experiment.DemoConfig
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what the cache does for three generated tables, within seconds",
		Long: `Show what the cache does for three generated tables, within seconds: dense float32
features of a graph, bfloat16 embeddings, and sparse bags of words. Each goes through
the cache and through an uncompressed one of the same budget. Ten batches train policy
and codec, twenty are measured. Times on a GPU are predicted from committed measurements,
but for --device cuda, which runs these very batches, with output in host memory.

  features    300,000 rows of 128 float32, those of run; 1,024 seeds, fan-outs 15 and 10, on a power-law
              graph of 15 edges a vertex; a budget of 10 %
  embeddings  400,000 rows of 128 elements, rounded to bfloat16; 2,048 samples of 26 lookups,
              P(rank) ∝ 1/rank; 5 %
  bags        40,000 rows of 1,433 float32, 0 or 1, up to 35 words a row; 1,024 seeds, on a power-law
              graph of 4 edges a vertex; 1 %`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			res, err := withProgress(cmd, func(bar *progress) (*experiment.DemoResult, error) { return experiment.Demo(cmd.Context(), cfg, bar) })
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), asJSON, res, func(w io.Writer, res *experiment.DemoResult) error { return report.Demo(w, res, program()) })
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Device, "device", "auto", "backend: auto, host or cuda")
	f.IntVar(&cfg.Workers, "workers", 0, "goroutines of the host (default: one a processor)")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of everything generated and sampled")
	f.IntVar(&cfg.Scale, "scale", 1, "divide tables and batches by this")
	f.Lookup("scale").Hidden = true // for tests
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// program is what the user has typed to start cachebench, such as build/cachebench.
func program() string {
	if filepath.Base(os.Args[0]) != "cachebench" {
		return "cachebench"
	}
	return os.Args[0]
}
