package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/bench/sim"
	"github.com/tensorcache/tensorcache/bench/trace"
)

func newSimulate() *cobra.Command {
	cfg := sim.CurveConfig{Config: sim.Config{Seed: 1}}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "simulate [TRACE]",
		Short: "Find out what policies would miss on a trace, at any cache size",
		Long: `Find out what policies would miss on a trace, at any cache size.

Each policy runs at each size, several at once, on one reading of the trace. With --mrc
LRU's whole miss-ratio curve is computed instead, in one pass.`,
		Example: `  cachebench simulate cloudphysics.oracleGeneral.zst --policy lru,s3fifo,belady --sizes 1%,5%,64MiB
  cachebench simulate oltp.arc --unit-size --policy arc,freq --sizes 500,10% --json
  cachebench simulate requests.csv --trace-type-params "time-col=1, obj-id-col=2, obj-size-col=3" --policy lru --sizes 1%
  zcat accesses.gz | cachebench simulate - --format ids --unit-size --policy lru --sizes 1000
  cachebench simulate oltp.arc --unit-size --mrc shards --shards-ids 8192`,
		Args: takesFile("trace"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			if err := cmp.Or(checkRules(f), notZero(f, "refresh-requests shards-rate shards-ids points workers", "above 0")); err != nil {
				return err
			}
			if f.Changed("mrc") && cfg.Method != sim.CurveExact && cfg.Method != sim.CurveShards {
				return fmt.Errorf("--mrc (%q) must be %s or %s", cfg.Method, sim.CurveExact, sim.CurveShards)
			}
			if cfg.Trace == "" {
				return errors.New("simulate: the trace must be given: simulate FILE, or --trace FILE")
			}
			if cfg.Method != "" {
				curve, err := withProgress(cmd, func(bar *progress) (*sim.Curve, error) { return sim.MissRatios(cmd.Context(), cfg, bar) })
				if err != nil {
					return err
				}
				return show(cmd.OutOrStdout(), asJSON, curve, report.Curve)
			}
			setIfNone(&cfg.Policies, "lru", "s3fifo", "tinylfu")
			setIfNone(&cfg.Sizes, "1%", "5%", "20%")
			s, err := withProgress(cmd, func(bar *progress) (*sim.Simulation, error) { return sim.Simulate(cmd.Context(), cfg.Config, bar) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), s.Results)
			}
			return report.Simulation(cmd.OutOrStdout(), s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&once{to: &cfg.Trace}, "trace", "accesses: FILE, or - for the standard input")
	f.StringVar(&cfg.Format, "format", "", "its format, if not what it looks like: "+strings.Join(trace.Formats(), ", "))
	addTraceParams(f, &cfg.TraceParams)
	f.StringSliceVar(&cfg.Policies, "policy", nil, strings.Join(sim.PolicyNames(), ", "))
	f.StringSliceVar(&cfg.Sizes, "sizes", nil, "cache sizes: 1% of the working set, or 64MiB; with --unit-size 5000 objects")
	f.BoolVar(&cfg.UnitSize, "unit-size", false, "count every object as 1, whatever its size")
	f.IntVar(&cfg.RefreshRequests, "refresh-requests", 0, "requests between refreshes of admission policies")
	f.StringVar(&cfg.Method, "mrc", "", "compute LRU's miss-ratio curve: exact or shards (a sample of the IDs)")
	f.Float64Var(&cfg.Rate, "shards-rate", 0, "share of the IDs that shards samples")
	f.IntVar(&cfg.MaxIDs, "shards-ids", 0, "most IDs that shards keeps")
	f.IntVar(&cfg.Points, "points", 100, "sizes of the curve, evenly up to the working set, without --sizes")
	f.IntVar(&cfg.Workers, "workers", 0, "simulations at a time (default: one a processor)")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of everything sampled")
	addForce(f, &cfg.Force)
	f.BoolVar(&asJSON, "json", false, "print a JSON array; with --mrc one JSON object")
	f.Lookup("policy").DefValue, f.Lookup("sizes").DefValue = "lru,s3fifo,tinylfu", "1%,5%,20%, without --mrc"
	f.Lookup("refresh-requests").DefValue = "a 250th of the trace, at least 256"
	f.Lookup("shards-rate").DefValue = "0.01, with --shards-ids 1"
	return cmd
}

// setIfNone sets a list that was not given.
func setIfNone(list *[]string, to ...string) {
	if len(*list) == 0 {
		*list = to
	}
}
