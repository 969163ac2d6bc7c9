package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// group is the cells that differ in their seeds only. Figures of a group are medians over its cells.
type group struct {
	cells    []*Cell
	settings map[string]string
}

// grouping is all groups and what tells them apart.
type grouping struct {
	groups []*group
	// keys are all settings in the order in which they are shown; varying are those that tell groups apart: the file, and
	// what differs between the groups of a file.
	keys, varying []string
	files         map[string][]*group
}

// leading are the settings that come first; the others follow by name.
var leading = []string{"file", "ran on", "table", "workload", "policy", "budget", "codec", "host_tier"}

func newGrouping(cells []Cell) *grouping {
	g := &grouping{files: map[string][]*group{}}
	byKey := map[string]*group{}
	keys := map[string]bool{}
	for i := range cells {
		c := &cells[i]
		settings := settingsOf(c)
		b, _ := json.Marshal(settings) // strings; map keys come out sorted
		for k := range settings {
			keys[k] = true
		}
		same := byKey[string(b)]
		if same == nil {
			same = &group{settings: settings}
			byKey[string(b)] = same
			g.groups = append(g.groups, same)
			g.files[c.File] = append(g.files[c.File], same)
		}
		same.cells = append(same.cells, c)
	}
	g.keys = slices.SortedFunc(maps.Keys(keys), func(a, b string) int {
		rank := func(k string) int {
			if i := slices.Index(leading, k); i >= 0 {
				return i
			}
			return len(leading)
		}
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, k := range g.keys {
		if k == "file" && len(g.files) > 1 || slices.ContainsFunc(g.groups, func(x *group) bool { return g.variesAt(x, k) }) {
			g.varying = append(g.varying, k)
		}
	}
	return g
}

// variesAt says that a setting differs between the groups of a group's file.
func (g *grouping) variesAt(x *group, key string) bool {
	return slices.ContainsFunc(g.files[x.settings["file"]], func(y *group) bool { return y.settings[key] != x.settings[key] })
}

// settingsOf is what a cell ran with: the configuration, and what only the result says.
func settingsOf(c *Cell) map[string]string {
	r := &c.Result
	s := map[string]string{
		"file":     c.File,
		"ran on":   fmt.Sprintf("%d × %s (%s)", r.Device.Count, r.Device.Kind, r.Device.Name),
		"table":    fmt.Sprintf("%s: %s rows of %s B (%s)", r.Table.Name, count(r.Table.Rows), count(int64(r.Table.RowBytes)), r.Table.DType),
		"workload": fmt.Sprintf("%s, %s", r.Workload.Kind, plural(r.Workload.Batches, "batch", "batches")),
		"policy":   r.Cache.Policy,
		"codec":    r.Cache.Codec,
		"budget":   bytesOf(r.Cache.BudgetBytes),
	}
	if r.Workload.Cold {
		s["workload"] += ", cold"
	}
	for k, v := range c.Config {
		if text := settingText(v); text != "" && k != "seed" && k != "data_seed" { // data_seed comes with all seeds but the first
			s[k] = text
		}
	}
	return s
}

func settingText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// name says what tells a group from the others, but for some settings.
func (g *grouping) name(x *group, but ...string) string {
	var parts []string
	for _, k := range g.varying {
		if !slices.Contains(but, k) && (k == "file" || g.variesAt(x, k)) {
			parts = append(parts, x.setting(k))
		}
	}
	if len(parts) == 0 {
		return x.settings["policy"]
	}
	return strings.Join(parts, " · ")
}

// setting is a dash where the group has none: runs do not say with which flags they were made.
func (x *group) setting(key string) string { return cmp.Or(x.settings[key], "–") }

// chunks are so many groups that a chart shows them apart, in the order of the results. title names a chunk after what is shown.
func chunks(groups []*group, show func(title string, groups []*group), title string) {
	n := (len(groups) + looks - 1) / looks
	i := 0
	for part := range slices.Chunk(groups, looks) {
		if i++; n > 1 {
			show(fmt.Sprintf("%s, part %d of %d", title, i, n), part)
		} else {
			show(title, part)
		}
	}
}

// figures returns a figure of each cell, in order.
func (x *group) figures(of func(*Cell) float64) (values []float64) {
	for _, c := range x.cells {
		values = append(values, of(c))
	}
	slices.Sort(values)
	return values
}

func (x *group) median(of func(*Cell) float64) float64 { return experiment.Median(x.figures(of)) }

// written is a group's median, and its range if there are several cells.
func (x *group) written(of func(*Cell) float64, text func(float64) string) entry {
	v := x.figures(of)
	e := entry{Text: text(experiment.Median(v)), Sort: fmt.Sprintf("%g", experiment.Median(v))}
	if lo, hi := text(v[0]), text(v[len(v)-1]); lo != hi {
		if number, unit, ok := strings.Cut(lo, " "); ok && strings.HasSuffix(hi, " "+unit) {
			lo = number
		}
		e.Range = lo + " – " + hi
	}
	return e
}
