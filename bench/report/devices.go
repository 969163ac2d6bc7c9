package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
)

// Devices prints the GPUs.
func Devices(w io.Writer, driver string, gpus []cuda.GPU) error {
	t := newTable("GPU", "name", "compute", "kernels in this build", "PCI", "memory", "free", "host link", "node", "reads peers", "native atomics")
	for _, g := range gpus {
		node := "unknown"
		if g.Node >= 0 {
			node = fmt.Sprint(g.Node)
		}
		code := "PTX"
		if kernels.HasMachineCode(g.ComputeCapability) {
			code = "machine code"
		}
		t.AppendRow(table.Row{
			g.Index, g.Name, g.ComputeCapability, code, g.PCIBusID, bytesOf(g.MemoryBytes), bytesOf(g.FreeBytes), cmp.Or(g.HostLink, "unknown"), node, indices(g.Peers), indices(g.Atomics),
		})
	}
	_, err := fmt.Fprintf(w, "driver: %s\n%s\n", driver, t.Render())
	return err
}

func indices(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}
