package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/papers"
	"github.com/tensorcache/tensorcache/bench/report"
)

func newReproduce() *cobra.Command {
	o := papers.Options{Seed: 1}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reproduce [" + strings.Join(papers.Names, "|") + "|" + papers.All + "]",
		Short: "Measure the claims of the papers that the methods come from",
		Long: `Measure the claims of the papers that the methods come from on this machine: savings,
ratios and capacity, in some seconds. What needs a GPU is listed with the command that
measures it there. Tables that are not in --data are generated in the shape of the
papers', and the result says so.`,
		Example: `  cachebench reproduce zipnn
  cachebench reproduce all --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := present(cmd, asJSON, func(bar *progress) (*papers.Result, error) {
				o.Progress = func(what string) { bar.Stage(what, 0) }
				return papers.Reproduce(cmd.Context(), append(args, papers.All)[0], o)
			}, report.Papers)
			return err
		},
	}
	cmd.Flags().Var(&once{to: &o.Data}, "data", "folder of real tables (default: $TENSORCACHE_DATA, or ../shared/data)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", o.Seed, "seed of what is generated, and of samples")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
