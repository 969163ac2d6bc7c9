package report

import (
	"fmt"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// placementHeader heads the columns that placementRow fills, for the phases of a layout that has times.
func placementHeader(p *experiment.Placement) []string {
	header := []string{"layout", "policy", "codec", "GPU", "host", "drive", "on GPU", "from host", "from pages"}
	for _, t := range timesOf(p) {
		name := t.Phase
		if name == "" {
			name = "batch"
		}
		header = append(header, fmt.Sprintf("ms/%s of %s", name, count(int64(t.Rows+0.5))), "known early")
	}
	return append(header, "fits", "because")
}

// timesOf returns the times of a layout that has some.
func timesOf(p *experiment.Placement) []experiment.PlacedTime {
	for _, l := range p.Layouts {
		if len(l.Times) > 0 {
			return l.Times
		}
	}
	return nil
}

func placementRow(p *experiment.Placement, l *experiment.PlacedLayout) []string {
	share := func(x float64) string {
		if l.DeviceRatio+l.HostRatio+l.ColdRatio == 0 {
			return "-"
		}
		return percent(x)
	}
	size := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return bytesOf(n)
	}
	policy := l.Policy
	if policy == "" {
		policy = "-"
	}
	row := []string{l.Layout, policy, l.Codec, size(l.GPUBytes), size(l.HostBytes), size(l.PageBytes), share(l.DeviceRatio), share(l.HostRatio), share(l.ColdRatio)}
	for i := range timesOf(p) {
		ms, early := "-", "-"
		if i < len(l.Times) {
			ms, early = fmt.Sprintf("%.3f", l.Times[i].MS), fmt.Sprintf("%.3f", l.Times[i].MS)
			if l.Times[i].PrefetchedMS > 0 {
				early = fmt.Sprintf("%.3f", l.Times[i].PrefetchedMS)
			}
		}
		row = append(row, ms, early)
	}
	fits := "no"
	if l.Fits {
		fits = "yes"
	}
	return append(row, fits, l.Why)
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

// placementTable has the layouts of a machine.
func placementTable(p *experiment.Placement) tableView {
	t := tableView{Header: placementHeader(p), Texts: 3}
	for i := range p.Layouts {
		var row []entry
		for _, text := range placementRow(p, &p.Layouts[i]) {
			row = append(row, entry{Text: text})
		}
		row[len(row)-2].Bad = !p.Layouts[i].Fits
		t.Rows = append(t.Rows, row)
	}
	return t
}

// placement prints the layouts of a machine, and which one it is to have.
func (p *printer) placement(one *experiment.Placement) {
	p.printf("\n")
	p.line("machine", "%s", machineOf(one))
	p.line("layout", "%s", verdictOf(one))
	p.table(placementTable(one))
}
