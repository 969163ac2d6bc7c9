package gpu

import (
	"cmp"
	"math"
	"slices"
)

// Border is the skew of accesses from which on another way to read a table is faster than the resident table, as far as it was measured.
type Border struct {
	Case     string `json:"case"`
	RowBytes int    `json:"row_bytes"`
	Codec    string `json:"codec"`
	Variant  string `json:"variant,omitempty"` // of the results
	// Against is the other way: the name of a further figure of the results.
	Against string `json:"against"`
	// From and To are the least and the greatest skew that was measured.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Skew is where the logarithms of both speeds cross, taken as straight lines between the measured skews. It is nil if the resident table is faster at
	// To; it is From if the other way is faster wherever it was measured.
	Skew *float64 `json:"skew"`
}

// borders returns the borders of the results that have a skew, in the order of the results.
func borders(results []Result) (all []Border) {
	type key struct {
		name, codec, variant string
		rowBytes             int
	}
	of := map[key][]*Result{}
	var keys []key
	for i := range results {
		x := &results[i]
		k := key{x.Case, x.Codec, x.Variant, x.RowBytes}
		if x.Skew == nil {
			continue
		}
		if of[k] == nil {
			keys = append(keys, k)
		}
		of[k] = append(of[k], x)
	}
	for _, k := range keys {
		measured := of[k]
		slices.SortFunc(measured, func(a, b *Result) int { return cmp.Compare(*a.Skew, *b.Skew) })
		from, to := *measured[0].Skew, *measured[len(measured)-1].Skew
		for _, f := range measured[0].Further {
			b := Border{Case: k.name, RowBytes: k.rowBytes, Codec: k.codec, Variant: k.variant, Against: f.Name, From: from, To: to}
			var skews, ahead []float64 // and by how much the resident table is ahead: above 0 if it is faster
			for _, x := range measured {
				if other := x.FurtherValue(f.Name); other > 0 && x.Value > 0 {
					skews, ahead = append(skews, *x.Skew), append(ahead, math.Log(x.Value/other))
				}
			}
			if len(skews) != len(measured) {
				continue
			}
			last := len(ahead) - 1
			for last >= 0 && ahead[last] < 0 {
				last--
			}
			switch { // last is the greatest skew at which the resident table is not slower
			case last < 0:
				b.Skew = &from
			case last < len(ahead)-1:
				skew := skews[last] + (skews[last+1]-skews[last])*ahead[last]/(ahead[last]-ahead[last+1])
				b.Skew = &skew
			}
			all = append(all, b)
		}
	}
	return all
}
