package admission

import (
	"math"
	"runtime"

	"github.com/tensorcache/tensorcache/internal/numa"
)

// rankPart is a range of buckets that one goroutine ranks. All parts together give the ranking that one part would.
type rankPart struct {
	from, to int // buckets
	bins     *freqBins
	least    int64               // bytes of the shortest slot
	left     [horizons + 1]int64 // bytes that are left for the part's rows in the bin that does not fit as a whole
}

// rankParts divides the buckets of large tables by the number of processors. It returns the memory of the bins too.
func (f *frequency) rankParts() ([]rankPart, *numa.Memory) {
	n := 1
	if len(f.buckets) >= shardedBuckets {
		n = runtime.GOMAXPROCS(0)
	}
	bins, memory := numa.Make[freqBins](int64(n))
	parts := make([]rankPart, n)
	for i := range parts {
		parts[i] = rankPart{from: shardStart(i, n, len(f.buckets)), to: shardStart(i+1, n, len(f.buckets)), bins: &bins[i]}
	}
	return parts, memory
}

// measure fills a part's bins.
func (f *frequency) measure(p *rankPart) {
	bins := p.bins
	p.least = math.MaxInt64
	for i := range f.buckets[p.from:p.to] {
		b := &f.buckets[p.from+i]
		for w, key := range b.keys {
			if key == noKey {
				continue
			}
			slot, value := b.info[w].slot(), b.value[w]
			p.least = min(p.least, slot)
			for k := range horizons {
				bins.bytes[k][bin(b.counts[w][k]*value)] += slot
			}
			at := bin(f.score(b, w))
			bins.bytes[horizons][at] += slot
			bins.rows[at]++
		}
	}
}

// binOf returns the bin of an entry in index k of freqBins.bytes.
func (f *frequency) binOf(b *freqBucket, w, k int) uint32 {
	if k == horizons {
		return bin(f.score(b, w))
	}
	return bin(b.counts[w][k] * b.value[w])
}

// divide sets what is left for each part of the bytes left for the rows of the bins that do not fit as a whole. Rows get them in the order of
// their buckets, so that a part gets what those before it leave. A row that does not fit is passed over.
func (f *frequency) divide(parts []rankPart, cuts *[horizons + 1]uint32, left [horizons + 1]int64) {
	for i := range parts {
		p := &parts[i]
		p.left = left
		if i == len(parts)-1 {
			return
		}
		for k, at := range cuts {
			switch sum := p.bins.bytes[k][at]; {
			case sum <= left[k]:
				left[k] -= sum
			case left[k] >= p.least: // some rows fit
				for j := range f.buckets[p.from:p.to] {
					b := &f.buckets[p.from+j]
					for w, key := range b.keys {
						if key == noKey || b.info[w].slot() > left[k] || f.binOf(b, w, k) != at {
							continue
						}
						left[k] -= b.info[w].slot()
					}
				}
			}
		}
	}
}

// sort puts a part's rows in the order and notes which fit. bins.rows holds where the next row of each bin goes.
func (f *frequency) sort(p *rankPart, cuts *[horizons + 1]uint32) {
	left := p.left
	for i := range f.buckets[p.from:p.to] {
		b := &f.buckets[p.from+i]
		for w, key := range b.keys {
			if key == noKey {
				continue
			}
			at := bin(f.score(b, w))
			f.order[p.bins.rows[at]] = key
			p.bins.rows[at]++
			slot, value, fits := b.info[w].slot(), b.value[w], freqInfo(0)
			for k := range cuts {
				its := at
				if k < horizons {
					its = bin(b.counts[w][k] * value)
				}
				if its == cuts[k] && left[k] >= slot {
					left[k] -= slot
					fits |= 1 << k
				} else if its > cuts[k] {
					fits |= 1 << k
				}
			}
			b.info[w] = b.info[w]&^fitsMask | fits | known
		}
	}
}
