package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
)

// maxExplained is the most rows that are explained at once.
const maxExplained = 10_000

func newExplain() *cobra.Command {
	cfg := experiment.NewConfig()
	var asJSON bool
	var rows string
	var watch telemetryFlags
	cmd := &cobra.Command{
		Use:   "explain --rows LIST",
		Short: "Say of given rows where they are after a run, or why they are not cached",
		Long: `Run a workload through the cache, as run does with the same flags, and then say of each given
row where it is cached, or why not: with the policy's estimate of its frequency, its score, and
the least score that there was room for.`,
		Example: `  cachebench explain --rows 1,17,1000-1010
  cachebench explain --rows 0-99 --features cora.npz --graph cora.npz --budget 1% --json`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := parseRows(rows)
			if err != nil {
				return err
			}
			if err := checkFlags(cmd, ""); err != nil {
				return err
			}
			end, err := watch.start(cmd, &cfg)
			if err != nil {
				return err
			}
			defer end()
			_, err = present(cmd, asJSON, func(bar *progress) ([]experiment.Explained, error) {
				return experiment.Explain(cmd.Context(), cfg, list, bar)
			}, report.Explained)
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&rows, "rows", "", "row numbers and ranges of them: 1,17,1000-1010")
	f.AddFlagSet(runFlags(&cfg))
	watch.add(f)
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	if err := cmd.MarkFlagRequired("rows"); err != nil {
		panic(err)
	}
	return cmd
}

// parseRows reads a list of row numbers and ranges.
func parseRows(list string) (rows []int64, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("--rows (%q) must be row numbers and ranges of them: 1,17,1000-1010", part)
		}
		if to-from >= int64(maxExplained-len(rows)) {
			return nil, fmt.Errorf("--rows (%q) must be at most %d rows in all", part, maxExplained)
		}
		for row := from; row <= to; row++ {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
