package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/device/cuda"
)

func newDevices() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the GPUs, or say why none is usable",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gpus, why := cuda.List()
			w := cmd.OutOrStdout()
			if asJSON {
				out := struct {
					Driver string     `json:"driver"`
					GPUs   []cuda.GPU `json:"gpus"`
					Error  string     `json:"error,omitempty"`
				}{cuda.Driver(), gpus, ""}
				if out.GPUs == nil {
					out.GPUs = []cuda.GPU{}
				}
				if why != nil {
					out.Error = why.Error()
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
