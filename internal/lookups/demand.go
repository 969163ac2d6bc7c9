package lookups

import (
	"math"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// Demand is what is known, before a table is loaded, of how its rows will be looked up.
type Demand struct {
	Rows    float64
	Lookups float64 // of the training batches that were read
	Batch   float64 // mean rows of a batch, 0 if too few lookups are known
	// Drawn are rows that stand for all rows, those looked up most often first; nil: nothing is known.
	Drawn []registry.Drawn
}

// DemandOf returns what training batches say of a table.
func DemandOf(batches []Batch, table int, rows int64, rowBytes int, seed uint64) *Demand {
	d := &Demand{Rows: float64(rows), Drawn: draw(batches, table, rows, rowBytes, seed)}
	n := 0.0
	for _, b := range batches {
		if b.Table == table && len(b.Rows) > 0 {
			n, d.Lookups = n+1, d.Lookups+float64(len(b.Rows))
		}
	}
	if d.Lookups >= popularLookups {
		d.Batch = d.Lookups / n
	}
	return d
}

// Found returns the share of the lookups that the best rows get, given their number. If nothing is known, lookups are taken to follow a power law, as for
// codecs.
func (d *Demand) Found(rows float64) float64 {
	if d.Drawn == nil {
		return math.Pow(min(1, max(0, rows)/max(1, d.Rows)), unknownPower)
	}
	found := 0.0
	for _, r := range d.Drawn {
		if rows <= r.Rows {
			return min(1, found+r.Lookups*max(0, rows)/r.Rows)
		}
		found, rows = found+r.Lookups, rows-r.Rows
	}
	return min(1, found)
}

// unknownPower is the exponent of the hit ratio that is assumed if nothing is known of the lookups: 5 % of the rows get 40 % of them.
const unknownPower = 0.3

// Absent returns which share of the misses of a table, whose best rows lie in slabs and the next best in its host tier, the host tier does not have either.
func (d *Demand) Absent(inSlabs, inHost float64) float64 {
	misses := 1 - d.Found(inSlabs)
	if misses <= 0 {
		return 0
	}
	return min(1, max(0, 1-d.Found(inSlabs+inHost))/misses)
}
