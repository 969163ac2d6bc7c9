package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Merge makes one report of several reports of different cases, measured on machines of the same kind. It is of the first report's commit; results of
// other commits say so. If one report has a case in whole and others have parts of it, the whole counts. A case that two reports have in
// whole is an error.
func Merge(reports ...*Report) (*Report, error) {
	if len(reports) == 0 {
		return nil, errors.New("reports (none) must be at least one")
	}
	first := reports[0]
	m := &Report{Device: first.Device, Driver: first.Driver, Commit: first.Commit}
	for _, c := range Cases {
		var whole, broken, skipped *Report
		for _, r := range reports {
			if r.Device != m.Device || r.Driver != m.Driver {
				return nil, fmt.Errorf("reports (%s, driver %s, and %s, driver %s) must be of one device and driver", m.Device, m.Driver, r.Device, r.Driver)
			}
			of := func(s Skipped) bool { return s.Case == c }
			switch {
			case slices.ContainsFunc(r.Incomplete, of):
				broken = r
			case slices.ContainsFunc(r.Skipped, of):
				skipped = r
			case slices.ContainsFunc(r.Results, func(x Result) bool { return x.Case == c }):
				if whole != nil {
					return nil, fmt.Errorf("case (%s) must be in one of the reports, not in several", c)
				}
				whole = r
			}
		}
		from := cmp.Or(whole, broken, skipped)
		if from == nil {
			continue
		}
		keep := func(all []Skipped) (own []Skipped) {
			return slices.DeleteFunc(slices.Clone(all), func(s Skipped) bool { return s.Case != c })
		}
		for _, x := range from.Results {
			if x.Case != c {
				continue
			}
			if x.Commit == "" && from.Commit != m.Commit {
				x.Commit = from.Commit
			}
			m.Results = append(m.Results, x)
		}
		m.Skipped = append(m.Skipped, keep(from.Skipped)...)
		m.Incomplete = append(m.Incomplete, keep(from.Incomplete)...)
	}
	for _, r := range reports {
		for _, t := range r.Took {
			if i := slices.IndexFunc(m.Took, func(x Took) bool { return x.Case == t.Case }); i >= 0 {
				m.Took[i].Seconds += t.Seconds
			} else {
				m.Took = append(m.Took, t)
			}
		}
	}
	return m, nil
}
