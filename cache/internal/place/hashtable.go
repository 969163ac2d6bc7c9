package place

import (
	"math/bits"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
)

// hashTable finds numbers by hashes: a table with open addressing, at most three quarters full. The hash of a number is asked for when the table grows. The zero
// value has no numbers.
type hashTable struct {
	numbers []uint32 // 1 + each number; 0: free. Those of one hash follow each other from its home on
	n       int
}

const (
	leastSize = 64
	loadGrain = 1 << 14
)

// sizeFor returns the size of a hashTable of n numbers: a power of two, at most three quarters of which n takes.
func sizeFor(n int) int { return max(leastSize, 1<<bits.Len(uint(n+n/3))) }

// home returns the first position of a hash.
func (f *hashTable) home(hash uint64) int { return int(hash & uint64(len(f.numbers)-1)) }

// next returns the position behind one.
func (f *hashTable) next(i int) int { return (i + 1) & (len(f.numbers) - 1) }

// find returns the number with a hash for which is returns true.
func (f *hashTable) find(hash uint64, is func(n uint32) bool) (n uint32, ok bool) {
	if f.n == 0 {
		return 0, false
	}
	for i := f.home(hash); f.numbers[i] != 0; i = f.next(i) {
		if n = f.numbers[i] - 1; is(n) {
			return n, true
		}
	}
	return 0, false
}

// load makes a hashTable of the numbers below n.
func (f *hashTable) load(w device.Workers, n int, hashOf func(n uint32) uint64) {
	f.numbers, f.n = make([]uint32, sizeFor(n)), n
	w.For(n, loadGrain, func(from, to int) {
		for k := from; k < to; k++ {
			i := f.home(hashOf(uint32(k)))
			for !atomic.CompareAndSwapUint32(&f.numbers[i], 0, uint32(k+1)) {
				i = f.next(i)
			}
		}
	})
}

// add adds a number, which must not be there.
func (f *hashTable) add(n uint32, hashOf func(n uint32) uint64) {
	if f.n++; 4*f.n > 3*len(f.numbers) {
		old := f.numbers
		f.numbers = make([]uint32, sizeFor(2*f.n))
		for _, x := range old {
			if x != 0 {
				f.put(x, hashOf)
			}
		}
	}
	f.put(n+1, hashOf)
}

func (f *hashTable) put(x uint32, hashOf func(n uint32) uint64) {
	i := f.home(hashOf(x - 1))
	for f.numbers[i] != 0 {
		i = f.next(i)
	}
	f.numbers[i] = x
}

// remove removes a number, which must be there. Those behind it that are not at home move up.
func (f *hashTable) remove(n uint32, hashOf func(n uint32) uint64) {
	i := f.home(hashOf(n))
	for f.numbers[i] != n+1 {
		i = f.next(i)
	}
	mask := len(f.numbers) - 1
	for j := f.next(i); f.numbers[j] != 0; j = f.next(j) {
		if home := f.home(hashOf(f.numbers[j] - 1)); (j-home)&mask >= (j-i)&mask {
			f.numbers[i], i = f.numbers[j], j
		}
	}
	f.numbers[i] = 0
	f.n--
}
