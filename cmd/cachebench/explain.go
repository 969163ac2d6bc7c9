package main

import (
	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/internal/setting"
)

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
			list, err := setting.Rows("--rows", rows)
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
