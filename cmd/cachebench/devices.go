package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/rates"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/slab/placement"
)

func newDevices() *cobra.Command {
	var asJSON, measure bool
	var measured rates.Options
	var declared string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the GPUs, or say why none is usable, and measure their speeds",
		Long: `List the GPUs, or say why none is usable. With --measure, print as JSON the GB/s at which they
read random rows of their own memory, each other's, and page-locked rows of the host in order
of their address: all of --gpus at once, and the slowest counts; each pair is also measured alone.`,
		Example: `  cachebench devices
  cachebench devices --measure > rates.json && cachebench run --gpus all --rates rates.json`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRules(cmd.Flags()); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if cmd.Flags().Changed("declare") { // for machines that emulate GPUs
				of, err := placement.ParseRates(declared)
				if err != nil {
					return fmt.Errorf("--declare (%q): %w", declared, err)
				}
				return writeJSON(w, placement.Measured{Rates: of, Source: "declared", Emulated: true})
			}
			if measure {
				found, err := rates.Measure(measured)
				if err != nil {
					return fmt.Errorf("--measure: %w", err)
				}
				return writeJSON(w, found)
			}
			gpus, why := cuda.List()
			if asJSON {
				out := map[string]any{"driver": cuda.Driver(), "gpus": append([]cuda.GPU{}, gpus...)}
				if why != nil {
					out["error"] = why.Error()
				}
				return writeJSON(w, out)
			}
			if why != nil {
				_, err := fmt.Fprintf(w, "no usable GPU: %v\nthe host backend, --device host, runs everywhere\n", why)
				return err
			}
			return report.Devices(w, cuda.Driver(), gpus)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	measured.EnsureDefaults()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&measure, "measure", false, "measure what run --rates takes, and print it as JSON")
	f.IntSliceVar(&measured.GPUs, "gpus", nil, "GPUs to measure (default: all)")
	f.IntVar(&measured.RowBytes, "row-bytes", measured.RowBytes, "length of the rows that are read")
	f.IntVar(&measured.Batch, "batch", measured.Batch, "rows read at once")
	f.Int64Var(&measured.TableBytes, "table-bytes", measured.TableBytes, "bytes that rows are read from, on each GPU and on the host")
	f.IntVar(&measured.Runs, "runs", measured.Runs, "times each is measured; the median counts")
	f.StringVar(&declared, "declare", "", "measure nothing, and print such a file of these: local=1900,peer=350,host=50 (GB/s)")
	return cmd
}
