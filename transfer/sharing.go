package transfer

import (
	"math"
	"math/bits"
)

// Sharing says how many rows of a table share slots. Class c counts places and groups of 2^(c-1) to 2^c - 1 equal
// rows: their rows, their slots, and the bytes of these slots.
type Sharing [64]struct{ Rows, Slots, Bytes int64 }

// Add adds a slot of the given bytes that the given number of rows share.
func (s *Sharing) Add(rows, bytes int64) {
	c := &s[bits.Len64(uint64(rows))]
	c.Rows, c.Slots, c.Bytes = c.Rows+rows, c.Slots+1, c.Bytes+bytes
}

// needed returns the expected share of a class's slots in a cache that holds each row of the class with probability
// held.
func (s *Sharing) needed(class int, held float64) float64 {
	return 1 - math.Pow(1-held, float64(s[class].Rows)/float64(s[class].Slots))
}

// Prices returns, for each class, the share of its slot that a cached row is expected to pay for. share is the share
// of rows without equals that the cache holds. One slot serves all equal rows, but a cache that holds few rows seldom
// holds a row's equal. mapBytes is what a cached row takes in addition to its slot. held is the share of a class's
// rows that is cached at that price, assuming that the number of rows with a given use grows as the use falls.
func (s *Sharing) Prices(share, mapBytes float64) (prices, held Prices) {
	share = max(0, min(1, share))
	for c := range s {
		prices[c], held[c] = 1, share
		if s[c].Slots == 0 || share == 0 {
			continue
		}
		rows, slot := float64(s[c].Rows)/float64(s[c].Slots), float64(s[c].Bytes)/float64(s[c].Slots)
		for range 8 {
			prices[c] = max(1/rows, s.needed(c, held[c])/(rows*held[c]))
			held[c] = min(1, share*(slot+mapBytes)/(prices[c]*slot+mapBytes))
		}
	}
	return prices, held
}

// Prices are shares of a slot, by class of Sharing.
type Prices [len(Sharing{})]float64

// Of returns the price of a row with the given number of equal rows and slot bytes, at least 1 byte.
func (p *Prices) Of(rows, bytes int64) int64 {
	return max(1, int64(p[bits.Len64(uint64(max(1, rows)))]*float64(bytes)))
}

// Cached returns how many rows a cache holds, and their slot bytes, if it holds the given share of the rows without
// equals. alone is the number of rows without equals, and slots the bytes of their slots.
func (s *Sharing) Cached(share, mapBytes float64, alone, slots int64) (rows, bytes float64) {
	rows, bytes = share*float64(alone), share*float64(slots)
	_, held := s.Prices(share, mapBytes)
	for c := range s {
		if s[c].Slots > 0 {
			rows += held[c] * float64(s[c].Rows)
			bytes += s.needed(c, held[c]) * float64(s[c].Bytes)
		}
	}
	return rows, bytes
}

// Sharing returns which rows shared slots when the tier was loaded.
func (t *Tier) Sharing() *Sharing { return &t.sharing }

// Share returns the share of rows without equals in a cache of the given bytes. The bytes are for slots and, if maps
// is true, for what else rows take: mapBytes each. alone and slots are as in Cached.
func (s *Sharing) Share(bytes int64, maps bool, mapBytes float64, alone, slots int64) float64 {
	low, high := 0.0, 1.0
	for range 40 {
		mid := (low + high) / 2
		rows, takes := s.Cached(mid, mapBytes, alone, slots)
		if maps {
			takes += rows * mapBytes
		}
		if takes <= float64(bytes) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
