package transfer

import (
	"math/bits"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/internal/numa"
)

const (
	// equalShare is the bytes of rows for which the search for equal rows has an entry of 8 bytes, and leastEqualSlots the fewest entries.
	equalShare      = 512
	leastEqualSlots = 1 << 12
	// equalBucket is the entries among which a row has its own: a cache line.
	equalBucket = 8
	// equalGroup is the rows that are looked up together, so that none waits for memory alone.
	equalGroup = 64

	// An entry of the search: 1 + a row's number, whether another row was found to be equal, and bits of the hash.
	equalRowBits = 47
	equalFound   = 1 << equalRowBits
	equalTag     = 1<<64 - equalFound<<1
)

// equalSearch finds rows whose bytes are those of another row. It knows as many rows as it has entries: those that another was equal to, and the latest of the
// others. So it finds all rows that are like a frequent one, and in tables whose rows have 512 bytes or more on average nearly every repeat. It takes a
// sixty-fourth to a thirty-second of the rows' bytes. It is safe for concurrent use.
type equalSearch struct {
	slots  []uint64     // entries, in buckets that are filled from the front. They are changed by compare-and-swap
	memory *numa.Memory // of slots, to be freed
}

// newEqualSearch returns a search in so many rows of so many bytes.
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

// fetch loads the buckets of hashes, so that find does not wait for one after the other.
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

// find returns another row, and its entry, if same says that its bytes are those of the given row; or it enters the row. hash is that of the row. The other row
// keeps its entry from now on.
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

// peek returns the row of an entry that has the bits of a hash, -1 if there is none.
func (s *equalSearch) peek(hash uint64) int64 {
	for i := range s.slots[s.bucket(hash):][:equalBucket] {
		if x := atomic.LoadUint64(&s.slots[s.bucket(hash)+uint64(i)]); x != 0 && (x^hash)&equalTag == 0 {
			return rowOf(x)
		}
	}
	return -1
}

// keep has an entry stay. It returns false if another row has taken its place.
func (s *equalSearch) keep(at *uint64, entry uint64) bool {
	return entry&equalFound != 0 || atomic.CompareAndSwapUint64(at, entry, entry|equalFound) || atomic.LoadUint64(at) == entry|equalFound
}
