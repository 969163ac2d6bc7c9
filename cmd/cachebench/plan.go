package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/bench/sim"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
)

func newPlan() *cobra.Command {
	cfg := experiment.NewPlanConfig()
	var asJSON bool
	var configFile string
	target, memory, trace := "90%", "", ""
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say how many bytes of device memory a hit rate takes, for each policy and codec",
		Long: `Say how many bytes of device memory a hit rate takes, for each policy and codec.

Policies that are filled once are predicted exactly, those that follow the
accesses by simulation.`,
		Example: `  cachebench plan --features embeddings.npy --trace lookups.tct --target-hit 90% --gpu-memory 80GiB
  cachebench plan --target-hit 50% --check
  cachebench plan --features big.npy --ids accesses.txt --policy static-freq --codec rank --target-hit 30% --rows-per-second 20e6 --cold-bandwidth 6GB/s
  cachebench plan --workload ngram --tokens tokens.npy --rows 96000000 --phase decode:256,prefill:8192 --policy static-freq --codec ibp4 --target-hit 45% \
    --gpu-memory 20GiB --host-memory 16GiB --page 4KiB --cold-reads-per-second 80000 --cold-latency 100us`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkFlags(cmd, configFile); err != nil {
				return err
			}
			if trace != "" {
				for _, name := range []string{"ids", "fanouts"} {
					if cmd.Flags().Changed(name) {
						return fmt.Errorf("--%s and --trace contradict each other", name)
					}
				}
				cfg.IDs = trace
			}
			if cfg.Target, err = parsePercent(target); err != nil {
				return err
			}
			if memory != "" {
				n, err := humanize.ParseBytes(memory)
				if err != nil || n == 0 || n > 1<<59 {
					return fmt.Errorf("--gpu-memory (%q) must be a size: 80GiB, 80GB, bytes", memory)
				}
				cfg.GPUMemory = int64(n)
			}
			_, err = present(cmd, asJSON, func(bar *progress) (*experiment.PlanResult, error) {
				return experiment.MakePlan(cmd.Context(), cfg, bar)
			}, report.Plan)
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&once{to: &trace}, "trace", "trace whose IDs are row numbers, as --ids")
	f.StringVar(&target, "target-hit", target, "hit rate to reach: 90% or 0.9")
	f.StringVar(&memory, "gpu-memory", "", "memory of each device, such as 80GiB: say what fits, and what hit rate it gives")
	f.StringSliceVar(&cfg.Tiers.HostMemories, "host-memory", nil, "host memory for rows and index of a table in pages, sizes: say what lies on which tier")
	addDrive(f, &cfg.Tiers.Cold)
	f.StringVar(&cfg.Tiers.Page, "page", "", "most bytes of a page, 4KiB to 1MiB")
	f.StringVar(&cfg.Tiers.Order, "order", "", "rows that lie together in pages: degree, frequency (of the training batches), or a file of row numbers")
	f.Float64Var(&cfg.Tiers.RowsPerSecond, "rows-per-second", 0, "rows to look up a second: say how fast a drive that takes, and with --cold-bandwidth how much host memory")
	f.StringSliceVar(&cfg.Policies, "policy", cfg.Policies, "admission: "+strings.Join(admission.Names(), ", "))
	f.StringSliceVar(&cfg.Codecs, "codec", nil, strings.Join(registry.Usage(), ", "))
	f.StringSliceVar(&cfg.Phases, "phase", nil, "of --workload ngram, one or both, with the tokens of a batch: decode:256 (default), prefill:4096")
	f.IntVar(&cfg.HostThreads, "host-threads", cfg.HostThreads, "threads of the host that help a GPU with misses")
	of := runFlags(&cfg.Config)
	for name := range strings.FieldsSeq(`features dtype cast graph vertices ids fanouts weighted workload rows tokens orders heads layers text-tokens batch-size batches warmup-batches
		host-tier no-equal-rows refresh-batches refresh-churn sample-rate device devices workers seed force`) {
		f.AddFlag(of.Lookup(name))
	}
	f.Float64Var(&cfg.Overflow, "overflow", 0, "of the resident table beside the cache: most rows longer than their slot, 0 to 1 (default: 0.3)")
	f.StringVar(&cfg.Buddy, "buddy", "", "of the resident table beside the cache: where what is longer than the slots lies, host or peer (default: host)")
	f.BoolVar(&cfg.Check, "check", false, "run a cache of each budget and show its hit rate beside")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&configFile, "config", "", "FILE.json with these flags as keys, underscores for dashes; flags override it")
	f.Lookup("codec").DefValue = strings.Join(experiment.PlannedCodecs(), ",") + "; of a table of pages theirs"
	f.Lookup("page").DefValue = "256KiB"
	f.Lookup("order").DefValue = "by row number"
	f.Lookup("refresh-batches").DefValue = "5, with more than 320 batches a 64th of them"
	return cmd
}

// addDrive defines the flags of a drive or cluster below host memory.
func addDrive(f *pflag.FlagSet, d *sim.Drive) {
	f.StringVar(&d.Bandwidth, "cold-bandwidth", "", "what the drive or cluster delivers, such as 3GB/s: say how long batches take")
	f.Float64Var(&d.Reads, "cold-reads-per-second", 0, "pages that it reads a second, of many at once")
	f.DurationVar(&d.Latency, "cold-latency", 0, "time that one read takes, such as 100us")
}

// parsePercent reads a hit rate: 90%, or 0.9.
func parsePercent(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !percent && v > 1 {
		return 0, fmt.Errorf("--target-hit (%q) must be a hit rate such as 90%% or 0.9", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}
