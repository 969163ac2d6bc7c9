package main

import (
	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// newCapture is run with the trace's name in front.
func newCapture() *cobra.Command {
	cmd := newRun()
	cmd.Use = "capture --out FILE.tct"
	cmd.Short = "Run a workload and write its accesses, and whether they hit, as a trace"
	cmd.Long = `Do what run does with the same flags, and write every measured access to a trace
with its row number, row length, batch number, and whether this cache hit.`
	cmd.Example = `  cachebench capture --out sampling.tct
  cachebench capture --out cora.tct.zst --features cora.npz --graph cora.npz --budget 1%`
	f := cmd.Flags()
	f.Lookup("capture").Hidden = true
	for _, name := range []string{"features", "ids"} { // of one table
		f.Lookup(name).Usage = runFlags(new(experiment.Config)).Lookup(name).Usage
	}
	out := f.String("out", "", "trace to write: FILE.tct, FILE.oracleGeneral.zst, ... by its name")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmd.Flags().Set("capture", *out); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}
