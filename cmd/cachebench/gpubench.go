package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/report"
)

func newGPUBench() *cobra.Command {
	var o gpu.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gpu-bench",
		Short: "Measure the first GPU: each operation beside a plain kernel on the same rows",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = cmd.ErrOrStderr()
			res, err := gpu.Run(o)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), res)
			}
			return report.GPU(cmd.OutOrStdout(), res)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	o.EnsureDefaults()
	f.StringSliceVar(&o.Cases, "cases", o.Cases, "what to measure: "+strings.Join(gpu.Cases, ", "))
	f.IntSliceVar(&o.RowBytes, "rows", o.RowBytes, "row lengths, bytes")
	f.Int64Var(&o.TableBytes, "table-bytes", o.TableBytes, "size of the tables")
	f.IntVar(&o.Batch, "batch", o.Batch, "rows of a batch")
	f.IntVar(&o.Entries, "entries", o.Entries, "entries of the hashmap for lookup")
	f.IntVar(&o.Runs, "runs", o.Runs, "times each is measured; the median counts")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
