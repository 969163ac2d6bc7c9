package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
)

func newPlan() *cobra.Command {
	cfg := experiment.NewPlanConfig()
	var asJSON bool
	var configFile string
	targets, memory, trace := []string{"50%", "70%", "90%"}, "", ""
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Say how many bytes of GPU memory a hit rate takes",
		Long: `Say how many bytes of GPU memory a hit rate takes.

It opens caches as a program would, of several budgets. They learn from the
first part of the lookups, and what they hit of the rest is counted. Of large
tables it opens a miniature.`,
		Example: `  cachebench plan embeddings.npy --trace lookups.tct --target-hit 90% --device-memory 80GiB
  cachebench plan embeddings.npy --ids lookups.txt --target-hit 60% --check
  cachebench plan users.npy,items.npy --ids users.txt,items.txt
  cachebench plan big.npy --ids accesses.txt --policy static-freq --codec rank --target-hit 30% --rows-per-second 20e6 --cold-bandwidth 6GB/s
  cachebench plan --workload ngram --tokens tokens.npy --rows 96000000 --phase decode:256,prefill:8192 --policy static-freq --codec ibp4 --target-hit 45% \
    --device-memory 20GiB --host-memory 16GiB --page 4KiB --cold-reads-per-second 80000 --cold-latency 100us`,
		Args: takesFile("features"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkFlags(cmd, configFile); err != nil {
				return err
			}
			if trace != "" {
				cfg.IDs = trace
			}
			changed := cmd.Flags().Changed
			cfg.AtBudget = changed("gpu-memory")
			if cfg.AtBudget && changed("target-hit") {
				if changed("budget") || changed("device-memory") || strings.HasSuffix(cfg.Budget, "%") {
					return errors.New("--gpu-memory and --target-hit contradict each other: one follows from the other")
				}
				// Until the next release, as --device-memory had that name.
				fmt.Fprintln(cmd.ErrOrStderr(), "cachebench: --gpu-memory with --target-hit is --device-memory now; the old name goes with the next release")
				memory, cfg.AtBudget, cfg.Budget = cfg.Budget, false, experiment.NewConfig().Budget
			}
			cfg.Targets = nil
			for _, text := range targets {
				target, err := parsePercent(text)
				if err != nil {
					return err
				}
				cfg.Targets = append(cfg.Targets, target)
			}
			if memory != "" {
				n, err := humanize.ParseBytes(memory)
				if err != nil || n == 0 || n > 1<<59 {
					return fmt.Errorf("--device-memory (%q) must be a size: 80GiB, 80GB, bytes", memory)
				}
				cfg.GPUMemory = int64(n)
			}
			_, err = present(cmd, asJSON, func(bar *progress) (*experiment.PlanResult, error) {
				return experiment.MakePlan(cmd.Context(), cfg, bar)
			}, report.Plan)
			if err != nil && trace != "" {
				if text, ok := strings.CutPrefix(err.Error(), "--ids: "); ok {
					return fmt.Errorf("--trace: %s", text)
				}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&once{to: &trace}, "trace", "trace whose IDs are row numbers, as --ids")
	f.StringSliceVar(&targets, "target-hit", targets, "hit rates to reach: 90% or 0.9")
	f.StringVar(&memory, "device-memory", "", "all memory of each device, such as 80GiB, of which 32 MiB and 32 bytes for each row of the largest batch are kept for batches under way: say whether the plan fits, what all of it hits, and whether the table is faster as a resident one or in tiers")
	f.StringSliceVar(&cfg.Tiers.HostMemories, "host-memory", nil, "host memory for rows and index of a table in pages, sizes: a cache over pages is opened for each, to say what lies on which tier")
	f.StringVar(&cfg.Tiers.Cold.Bandwidth, "cold-bandwidth", "", "what the drive or cluster delivers, such as 3GB/s: say how long batches take")
	f.Float64Var(&cfg.Tiers.Cold.Reads, "cold-reads-per-second", 0, "pages that it reads a second, of many at once")
	f.DurationVar(&cfg.Tiers.Cold.Latency, "cold-latency", 0, "time that one read takes, such as 100us")
	f.StringVar(&cfg.Tiers.Page, "page", "", "most bytes of a page, 4KiB to 1MiB")
	f.StringVar(&cfg.Tiers.Order, "order", "", "rows that lie together in pages: degree, frequency (of the training batches), or a file of row numbers")
	f.Float64Var(&cfg.Tiers.RowsPerSecond, "rows-per-second", 0, "rows to look up a second: say how fast a drive that takes, and with --cold-bandwidth how much host memory")
	f.StringSliceVar(&cfg.Policies, "policy", []string{cfg.Policy}, "each is tried: "+strings.Join(admission.Names(), ", "))
	f.StringSliceVar(&cfg.Codecs, "codec", []string{cfg.Codec}, "each is tried with each policy: "+strings.Join(registry.Usage(), ", "))
	f.StringSliceVar(&cfg.Phases, "phase", nil, "of --workload ngram, one or both, with the tokens of a batch: decode:256 (default), prefill:4096. What is cached is decided by the first; decode is predicted as replays of a graph")
	f.IntVar(&cfg.HostThreads, "host-threads", cfg.HostThreads, "threads of the host that help a GPU with misses")
	of := runFlags(&cfg.Config)
	for name := range strings.FieldsSeq(`features dtype cast graph vertices ids fanouts weighted workload rows tokens orders heads layers text-tokens batch-size batches train-batches
		gpu-memory host-tier no-equal-rows cold drift refresh-batches refresh-churn sample-rate link device devices gpus placement workers seed force`) {
		f.AddFlag(of.Lookup(name))
	}
	f.StringVar(&cfg.Slots, "resident", "", "plan a resident table, of slots of so many bytes, or auto; what is read beyond these counts as missed")
	f.Lookup("features").Usage += ", or several: A.npy,B.npy"
	f.Lookup("ids").Usage += "; for several tables one each: A.txt,B.txt. The cache learns from the first three quarters, unless --train-batches says how many"
	f.Float64Var(&cfg.MaxOverflow, "max-overflow", 0, "of the resident table beside the cache: most rows longer than their slot, 0 to 1 (default: 0.3)")
	f.StringVar(&cfg.Buddy, "buddy", "", "of the resident table beside the cache: where what is longer than the slots lies, host or peer (default: host)")
	f.BoolVar(&cfg.Check, "check", false, "open a cache of each budget over the whole table, and show what it hits beside what was planned")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&configFile, "config", "", "FILE.json with these flags as keys, underscores for dashes; flags override it")
	f.Lookup("page").DefValue = "256KiB"
	f.Lookup("order").DefValue = "by row number"
	f.Lookup("gpu-memory").Usage = "say what a cache of so much device memory hits, instead of what a hit rate takes"
	f.Lookup("gpu-memory").DefValue = ""
	return cmd
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
