package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// group is the runs that differ in their seeds only. Figures of a group are medians over its runs.
type group struct {
	cells    []*Cell
	runs     []*run // of the cells
	settings map[string]string
}

// grouping is all groups and what tells them apart.
type grouping struct {
	groups []group
	// keys are all settings in the order in which they are shown; varying are those that tell groups apart: the file, and
	// what differs between the groups of a file.
	keys, varying []string
	files         map[string][]*group
}

// leading are the settings that come first; the others follow by name.
var leading = []string{"file", "ran on", "table", "workload", "policy", "budget", "codec", "host_tier"}

func newGrouping(cells []Cell) *grouping {
	g := &grouping{}
	order, groups := experiment.GroupBy(cells, func(c *Cell) string {
		b, _ := json.Marshal(settingsOf(c)) // strings; map keys come out sorted
		return string(b)
	})
	for _, k := range order {
		x := group{cells: groups[k], settings: settingsOf(groups[k][0])}
		for _, c := range x.cells {
			x.runs = append(x.runs, c.Result)
		}
		for key := range x.settings {
			if !slices.Contains(g.keys, key) {
				g.keys = append(g.keys, key)
			}
		}
		g.groups = append(g.groups, x)
	}
	rank := func(key string) int {
		if i := slices.Index(leading, key); i >= 0 {
			return i
		}
		return len(leading)
	}
	slices.SortFunc(g.keys, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	_, g.files = experiment.GroupBy(g.groups, func(x *group) string { return x.settings["file"] })
	for _, k := range g.keys {
		if k == "file" && len(g.files) > 1 || slices.ContainsFunc(g.groups, func(x group) bool { return g.variesAt(&x, k) }) {
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
	r := c.Result
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
		if v != nil && k != "seed" && k != "data_seed" { // data_seed comes with all seeds but the first
			s[k] = experiment.SettingText(v)
		}
	}
	return s
}

// name says what tells a group from the others, but for some settings.
func (g *grouping) name(x *group, but ...string) string {
	var parts []string
	for _, k := range g.varying {
		if !slices.Contains(but, k) && (k == "file" || g.variesAt(x, k)) {
			parts = append(parts, x.setting(k))
		}
	}
	return cmp.Or(strings.Join(parts, " · "), x.settings["policy"])
}

// setting is a dash where the group has none: runs do not say with which flags they were made.
func (x *group) setting(key string) string { return cmp.Or(x.settings[key], "–") }

// sortedFigures returns a figure of each item, sorted.
func sortedFigures[T any](items []*T, of func(*T) float64) (values []float64) {
	for _, x := range items {
		values = append(values, of(x))
	}
	slices.Sort(values)
	return values
}

func median[T any](items []*T, of func(*T) float64) float64 {
	return experiment.Median(sortedFigures(items, of))
}

// column is a column of figures.
type column[T any] struct {
	name string
	of   func(*T) float64
	text func(float64) string
}

// written is the median of the items, and their range if they differ.
func (c *column[T]) written(items ...*T) entry {
	v := sortedFigures(items, c.of)
	e := entry{Text: c.text(experiment.Median(v)), Sort: fmt.Sprintf("%g", experiment.Median(v))}
	if lo, hi := c.text(v[0]), c.text(v[len(v)-1]); lo != hi {
		if number, unit, ok := strings.Cut(lo, " "); ok && strings.HasSuffix(hi, " "+unit) {
			lo = number
		}
		e.Range = lo + " – " + hi
	}
	return e
}

// number is the cell of a figure.
func number(text func(float64) string, x float64) entry {
	return entry{Text: text(x), Sort: fmt.Sprintf("%g", x)}
}

// newTableView returns a table without rows. Its first column has names.
func newTableView[T any](caption, first string, columns []column[T]) tableView {
	t := tableView{Caption: caption, Header: []string{first}, Texts: 1}
	for _, c := range columns {
		t.Header = append(t.Header, c.name)
	}
	return t
}

// rowOf is the row of one item.
func rowOf[T any](name string, x *T, columns []column[T]) []entry {
	row := []entry{{Text: name}}
	for _, c := range columns {
		row = append(row, c.written(x))
	}
	return row
}
