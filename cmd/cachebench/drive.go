package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/drive"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
)

func newDrive() *cobra.Command {
	cfg := drive.Config{Seed: 1}
	size, page, hostMemory, budget := "4GiB", "256KiB", "8GiB", "4GiB"
	var asJSON bool
	cmd := &cobra.Command{
		Use:    "drive --dir FOLDER",
		Hidden: true, // for developers
		Short:  "Measure how fast rows are read from pages on a drive, beside a plain reader",
		Long: `Measure how fast rows are read from pages on a drive, beside a plain reader that does
nothing but read the same pages, with as many reads at once. The pages are made in a folder
of their own in FOLDER, and removed at the end.

With --gather batches of power-law rows are read through a cache over the pages, with --tokens
also the steps of a language model that looks up n-gram rows in it (docs/ngram.md): how long a
step waits for its rows where they are known ahead, and where they are not.`,
		Example: `  cachebench drive --dir /mnt/nvme
  cachebench drive --dir /mnt/nvme --bytes 32GiB --page 64KiB --depth 128 --json
  cachebench drive --dir /mnt/nvme --bytes 40GiB --gather cuda --host-memory 8GiB --budget 4GiB
  cachebench drive --dir /mnt/nvme --bytes 40GiB --page 4KiB --gather cuda --tokens tokens.npy --layers 2`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := setting.Bytes("--bytes", size)
			if err != nil {
				return err
			}
			p, err := setting.Bytes("--page", page)
			if err != nil || p < pages.MinPageBytes || p > pages.MaxPageBytes {
				return fmt.Errorf("--page (%q) must be 4KiB to 1MiB", page)
			}
			if cfg.Gather.HostMemory, err = setting.Bytes("--host-memory", hostMemory); err != nil {
				return err
			}
			if cfg.Gather.Budget, err = setting.Bytes("--budget", budget); err != nil {
				return err
			}
			for _, name := range []string{"orders", "heads", "layers", "phase", "text-tokens", "batch-size", "steps", "lead"} {
				if cmd.Flags().Changed(name) && cfg.Text.Tokens == "" {
					return fmt.Errorf("--%s means nothing without --tokens", name)
				}
			}
			if cfg.Text.Tokens != "" && cfg.Gather.Device == "" {
				return errors.New("--tokens needs --gather: a text is looked up through a cache")
			}
			for _, name := range []string{"row-bytes", "depth", "share", "rounds", "steps", "batch-size", "heads", "layers", "text-tokens"} {
				if value := cmd.Flags().Lookup(name).Value.String(); value == "0" && cmd.Flags().Changed(name) { // drive.Measure would take it for the default
					return fmt.Errorf("--%s (0) must be above 0", name)
				}
			}
			cfg.Bytes, cfg.PageBytes = n, int(p)
			if info, err := os.Stat(cfg.Dir); err != nil || !info.IsDir() {
				return fmt.Errorf("--dir (%s) must be a folder on the drive", cfg.Dir)
			}
			_, err = present(cmd, asJSON, func(bar *progress) (*drive.Result, error) {
				cfg.Progress = bar
				return drive.Measure(cmd.Context(), cfg)
			}, report.Drive)
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Dir, "dir", "", "folder on the drive")
	f.StringVar(&size, "bytes", size, "size of the table; larger than the drive's own cache")
	f.StringVar(&page, "page", page, "size of a page, 4KiB to 1MiB")
	f.IntVar(&cfg.RowBytes, "row-bytes", 0, fmt.Sprintf("size of a row (default 512; with --tokens %d)", workload.NgramRowBytes))
	f.IntVar(&cfg.Depth, "depth", 64, "reads at once")
	f.Float64Var(&cfg.Share, "share", 0.5, "share of the pages that a round reads, at random")
	f.IntVar(&cfg.Rounds, "rounds", 5, "how often each reader reads")
	f.StringVar(&cfg.Gather.Device, "gather", "", "also read batches of power-law rows through a cache over the pages: host or cuda")
	f.StringVar(&hostMemory, "host-memory", hostMemory, "host memory of that cache")
	f.StringVar(&budget, "budget", budget, "device memory of that cache")
	f.IntVar(&cfg.Gather.Rows, "batch", 200_000, "rows of a batch")
	f.IntVar(&cfg.Gather.Batches, "batches", 12, "batches that are timed, without and with Prefetch")
	f.Float64Var(&cfg.Gather.Skew, "skew", 1.1, "exponent of the power law, above 1")
	addNgramSpec(f, &cfg.Text.NgramSpec)
	f.IntVar(&cfg.Text.BatchSize, "batch-size", 0, "tokens of a step of the text (default that of the phase)")
	f.IntVar(&cfg.Text.Steps, "steps", 200, "steps of the text that are timed with each lead, and without")
	f.DurationSliceVar(&cfg.Text.Leads, "lead", []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		"how long before a step of the text Prefetch is called with its rows")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of rows and choices")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return cmd
}
