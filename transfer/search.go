package transfer

import (
	"math/bits"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/internal/numa"
)

const (
	// The search for equal rows has one entry, of 8 bytes, for each equalShare bytes of rows, and at least
	// leastEqualSlots entries.
	equalShare      = 512
	leastEqualSlots = 1 << 12
	// equalBucket is the number of entries in which a row may be entered: one cache line.
	equalBucket = 8
	// equalGroup is how many rows are looked up together, so that their memory reads overlap.
	equalGroup = 64

	// An entry of the search: 1 + a row's number, a bit that is set if another row was found equal, and bits of the
	// hash.
	equalRowBits = 47
	equalFound   = 1 << equalRowBits
	equalTag     = 1<<64 - equalFound<<1
)

// equalSearch finds rows whose bytes are equal to those of another row. It knows as many rows as it has entries. Rows
// to which another was equal stay; of the others only the latest stay. So it finds all rows that are equal to a
// frequent one. In tables whose rows have 512 bytes or more on average, it finds nearly every repeated row. It takes
// 1/64 to 1/32 of the rows' bytes. It is safe for concurrent use.
type equalSearch struct {
	slots  []uint64     // entries, in buckets that are filled from the front; changed by compare-and-swap
	memory *numa.Memory // of slots, to be freed
}

// newEqualSearch returns a search among the given number of rows, which have the given bytes together.
func newEqualSearch(bytes, rows int64) (s equalSearch) {
	slots := max(leastEqualSlots, bytes/equalShare)
	slots = max(equalBucket, min(slots, 2*rows, 1<<32))
	s.slots, s.memory = numa.Make[uint64](1 << bits.Len64(uint64(slots-1)))
	return s
}

// bucket returns the first entry of a hash's bucket.
func (s *equalSearch) bucket(hash uint64) uint64 {
	return hash & uint64(len(s.slots)-1) &^ (equalBucket - 1)
}

// fetch loads the buckets of hashes all at once, so that find need not wait for each.
func (s *equalSearch) fetch(hashes []uint64) {
	sum := uint64(0)
	for _, h := range hashes {
		sum += atomic.LoadUint64(&s.slots[s.bucket(h)])
	}
	touch(sum)
}

//go:noinline
func touch(uint64) {}

// rowOf returns the row of an entry.
func rowOf(entry uint64) int64 { return int64(entry&(equalFound-1)) - 1 }

// find looks for another row for which same returns true, which compares its bytes with the given row's. It returns
// that row and its entry, which keeps the row from now on. If there is none, find enters the given row. hash is the
// given row's hash.
func (s *equalSearch) find(row int64, hash uint64, same func(other int64) bool) (other int64, slot uint64, ok bool) {
	bucket := s.slots[s.bucket(hash):][:equalBucket]
	for {
		place, before := -1, uint64(0) // where the row can be entered
		for i := range bucket {
			x := atomic.LoadUint64(&bucket[i])
			if x == 0 {
				place, before = i, 0
				break
			}
			if (x^hash)&equalTag == 0 {
				if other = rowOf(x); same(other) && s.keep(&bucket[i], x) {
					return other, s.bucket(hash) + uint64(i), true
				}
			}
			if x&equalFound == 0 && (place < 0 || uint64(i) == hash>>32%equalBucket) {
				place, before = i, x
			}
		}
		if place < 0 || atomic.CompareAndSwapUint64(&bucket[place], before, hash&equalTag|uint64(row+1)) {
			return 0, 0, false
		}
	}
}

// peek returns the row of an entry that has the hash's bits, or -1 if there is none.
func (s *equalSearch) peek(hash uint64) int64 {
	for i := range s.slots[s.bucket(hash):][:equalBucket] {
		if x := atomic.LoadUint64(&s.slots[s.bucket(hash)+uint64(i)]); x != 0 && (x^hash)&equalTag == 0 {
			return rowOf(x)
		}
	}
	return -1
}

// keep makes an entry stay. It returns false if another row has replaced it.
func (s *equalSearch) keep(at *uint64, entry uint64) bool {
	return entry&equalFound != 0 || atomic.CompareAndSwapUint64(at, entry, entry|equalFound) || atomic.LoadUint64(at) == entry|equalFound
}
