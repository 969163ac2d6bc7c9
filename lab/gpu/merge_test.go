package gpu

import (
	"fmt"
	"strings"
	"testing"
)

// TestMerge: of each case the report that has it in whole, in the order of the cases; what nobody could measure stays said.
func TestMerge(t *testing.T) {
	t.Parallel()
	report := func(results string, change func(*Report)) *Report {
		r := &Report{Device: "d", Driver: "v", Commit: "c", Took: []Took{{Case: "setup", Seconds: 1}}}
		for _, c := range strings.Fields(results) {
			r.Results = append(r.Results, Result{Case: c, Value: 1})
		}
		if change != nil {
			change(r)
		}
		return r
	}
	one := report("lookup link hit-decode", func(r *Report) {
		r.Incomplete = []Skipped{{Case: "hit-decode", Reason: "not finished"}, {Case: "load", Reason: "load: it broke"}}
		r.Skipped = []Skipped{{Case: "peer-hits", Reason: "needs two GPUs"}, {Case: "gather-misses-large", Reason: "host memory"}}
	})
	two := report("hit-decode peer-hits hit-decode", func(r *Report) { r.Results[0].Value = 2 })
	m, err := Merge(one, two)
	if err != nil {
		t.Fatal(err)
	}
	have := ""
	for _, x := range m.Results {
		have += fmt.Sprintf("%s %g, ", x.Case, x.Value)
	}
	if have != "link 1, hit-decode 2, hit-decode 1, lookup 1, peer-hits 1, " {
		t.Error(have)
	}
	if len(m.Skipped) != 1 || m.Skipped[0].Case != "gather-misses-large" || len(m.Incomplete) != 1 || m.Incomplete[0].Case != "load" {
		t.Errorf("%+v", m)
	}
	if err := Whole(m); err == nil || err.Error() != "report (1 cases incomplete) must be whole: load: load: it broke" {
		t.Error(err)
	}
	if err := Whole(two); err != nil {
		t.Error(err)
	}
	if len(m.Took) != 1 || m.Took[0].Seconds != 2 {
		t.Errorf("%+v", m.Took)
	}
	later, err := Merge(one, report("caller", func(r *Report) { r.Commit = "d" }))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range later.Results {
		if want := map[bool]string{true: "d"}[x.Case == "caller"]; x.Commit != want {
			t.Errorf("%s is of commit %q, want %q", x.Case, x.Commit, want)
		}
	}
	for want, others := range map[string][]*Report{
		"case (link) must be in one of the reports": {one, report("link", nil)},
		"must be of one device and driver":          {one, report("load", func(r *Report) { r.Driver = "w" })},
		"reports (none) must be at least one":       nil,
		"and e, driver v) must be of one device":    {one, report("load", func(r *Report) { r.Device = "e" })},
	} {
		if _, err := Merge(others...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
