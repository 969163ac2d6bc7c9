package transfer

import "slices"

const (
	// restCost is the cost of a row that is longer than the bytes gathered of it, in addition to its bytes, in bytes
	// of a copy. The device reads the rest over the link, which takes as long as reading a small row. That is 11.6 ns
	// on an H200 with 16 GiB, where copies make 50 GB/s.
	restCost = 580
	// commonSample is the number of rows whose lengths are looked at.
	commonSample = 4096
)

// commonBytes returns how many bytes of each row host threads should gather: few bytes, but such that few rows are
// longer.
func (t *Tier) commonBytes() int {
	n := min(t.rows, commonSample)
	if n == 0 {
		return t.rowBytes
	}
	lengths := make([]int, 0, n)
	for i := range n {
		stored, _, err := t.Stored(i * t.rows / n)
		if err != nil {
			continue
		}
		lengths = append(lengths, len(stored))
	}
	return cheapest(lengths, t.rowBytes)
}

// cheapest returns the length at which gathering costs least in the mean. A row costs that length; a longer row also
// costs the rest and restCost. lengths are those of a sample, none longer than rowBytes.
func cheapest(lengths []int, rowBytes int) int {
	slices.Sort(lengths)
	best, least := rowBytes, rowBytes*len(lengths)
	longer, above := 0, 0 // rows longer than length, and their bytes
	for i := len(lengths) - 1; i >= 0; i-- {
		length := lengths[i]
		if cost := length*len(lengths) + above + longer*(restCost-length); cost <= least {
			best, least = length, cost
		}
		longer, above = longer+1, above+length
	}
	return best
}
