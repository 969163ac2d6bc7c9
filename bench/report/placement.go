package report

import (
	"cmp"
	"fmt"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// placementTable has the layouts of a machine, with the times of their phases.
func placementTable(p *experiment.Placement) tableView {
	t := tableView{Header: []string{"layout", "policy", "codec", "GPU", "host", "drive", "on GPU", "from host", "from pages"}, Texts: 3}
	var phases []experiment.PlacedTime // of a layout that has times
	for _, l := range p.Layouts {
		if len(phases) == 0 {
			phases = l.Times
		}
	}
	for _, of := range phases {
		t.Header = append(t.Header, fmt.Sprintf("ms/%s of %s", cmp.Or(of.Phase, "batch"), count(int64(of.Rows+0.5))), "known early")
	}
	t.Header = append(t.Header, "fits", "because")
	ifKnown := func(known bool, text func(float64) string, x float64) entry {
		if !known {
			return entry{Text: "-"}
		}
		return number(text, x)
	}
	for _, l := range p.Layouts {
		row := []entry{{Text: l.Layout}, {Text: cmp.Or(l.Policy, "-")}, {Text: l.Codec}}
		for _, n := range []int64{l.GPUBytes, l.HostBytes, l.PageBytes} {
			row = append(row, ifKnown(n != 0, wholeBytes, float64(n)))
		}
		for _, share := range []float64{l.DeviceRatio, l.HostRatio, l.ColdRatio} {
			row = append(row, ifKnown(l.DeviceRatio+l.HostRatio+l.ColdRatio != 0, percent, share))
		}
		for i := range phases {
			known, of := i < len(l.Times), experiment.PlacedTime{}
			if known {
				of = l.Times[i]
			}
			row = append(row, ifKnown(known, decimals, of.MS), ifKnown(known, decimals, cmp.Or(of.PrefetchedMS, of.MS)))
		}
		t.Rows = append(t.Rows, append(row, entry{Text: yesOrNo(l.Fits), Bad: !l.Fits}, entry{Text: l.Why}))
	}
	return t
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// verdictOf says which layout a placement chooses.
func verdictOf(p *experiment.Placement) string {
	if p.Choice == "" {
		return "none: " + p.Why
	}
	return p.Choice + ": " + p.Why
}

// machineOf says what there is.
func machineOf(p *experiment.Placement) string {
	if p.HostMemory == 0 {
		return fmt.Sprintf("%s of GPU memory, host memory as needed", bytesOf(p.GPUMemory))
	}
	return fmt.Sprintf("%s of GPU memory, %s of host memory", bytesOf(p.GPUMemory), bytesOf(p.HostMemory))
}

// placement prints the layouts of a machine, and which one it is to have.
func (p *printer) placement(one *experiment.Placement) {
	p.printf("\n")
	p.line("machine", "%s", machineOf(one))
	p.line("layout", "%s", verdictOf(one))
	p.table(placementTable(one))
}
