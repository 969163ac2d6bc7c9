package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
)

// worse is compare's exit status when a metric is worse beyond noise.
const worse = 2

func newCompare() *cobra.Command {
	var asJSON bool
	alpha := 0.05
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two sweeps or runs and say what changed beyond noise",
		Long: `Compare two sweeps or runs and say what changed beyond noise.

A and B are directories of run --sweep, or files of what run --json printed, one or
more objects each. Exit status 2 if a metric is worse beyond noise, else 0.`,
		Example: `  cachebench report compare before after
  cachebench report compare a.json b.json --json`,
		Args: takes("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := experiment.Compare(args[0], args[1], alpha)
			if err != nil {
				return err
			}
			err = show(cmd.OutOrStdout(), asJSON, c, report.Compare)
			if n := c.Count(experiment.Worse); err == nil && n > 0 {
				err = statusError{fmt.Errorf("metrics that are worse beyond noise: %d", n), worse}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.Float64Var(&alpha, "alpha", alpha, "how often equal samples may be called different")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
