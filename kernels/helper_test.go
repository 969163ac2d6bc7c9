package kernels

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab"
)

// batchSizes are those around a warp and around the parts that goroutines take.
var batchSizes = []int{0, 1, 31, 32, 33, 255, 256, 257, 511, 512, 513, 5000}

// run executes kernels one after the other on a device of the given workers.
func run(t testing.TB, workers int, kernels ...device.Kernel) {
	t.Helper()
	s, err := host.Open(1, workers)[0].NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, k := range kernels {
		if err := s.Launch(k); err != nil {
			t.Fatalf("%s: %v", k.Name(), err)
		}
	}
}

// guarded is device memory between canaries.
type guarded struct {
	device.Buffer
	all    []byte
	canary byte
}

const guardBytes = 256

// alloc returns n bytes of memory, filled with the canary and surrounded by it.
func alloc(t testing.TB, n int64, canary byte) guarded {
	t.Helper()
	b, err := host.Open(1, 1)[0].Alloc(n+2*guardBytes, "test")
	if err != nil {
		t.Fatal(err)
	}
	g := guarded{b.Slice(guardBytes, guardBytes+n), b.Bytes(), canary}
	copy(g.all, bytes.Repeat([]byte{canary}, len(g.all)))
	return g
}

// check fails when a canary has changed.
func (g guarded) check(t testing.TB, what string) {
	t.Helper()
	canaries := bytes.Repeat([]byte{g.canary}, guardBytes)
	if !bytes.Equal(g.all[:guardBytes], canaries) {
		t.Fatalf("%s: bytes before it were written", what)
	}
	if !bytes.Equal(g.all[len(g.all)-guardBytes:], canaries) {
		t.Fatalf("%s: bytes after its %d were written", what, g.Size())
	}
}

// newCounters returns zeroed counters.
func newCounters(t testing.TB) guarded {
	g := alloc(t, CountersBytes, 0xc7)
	clear(g.Bytes())
	return g
}

// table is rows with their stored form.
type table struct {
	rowBytes int
	codec    codec.Codec
	rows     [][]byte
	stored   [][]byte // as long as the row: raw
}

// newTable makes rows of which some shrink and some do not, and encodes them with the named codec.
func newTable(t testing.TB, codecName string, rows, rowBytes int, r *rand.Rand) *table {
	t.Helper()
	common := make([]byte, rowBytes)
	for i := range common {
		common[i] = byte(r.Uint32())
	}
	var all []byte
	for range rows {
		noise := 1 + r.IntN(9) // of ten bytes
		for i := range common {
			b := common[i]
			if r.IntN(10) < noise && (i%4 != 3 || noise > 7) {
				b ^= byte(r.Uint32()) & 0x3f
			}
			if noise == 9 {
				b = byte(r.Uint32())
			}
			all = append(all, b)
		}
	}
	tb := &table{rowBytes: rowBytes}
	var err error
	if tb.codec, err = registry.Train(codecName, all, rowBytes, gputest.DType(rowBytes)); err != nil {
		t.Fatal(err)
	}
	for ; len(all) > 0; all = all[rowBytes:] {
		row := all[:rowBytes:rowBytes]
		stored := row
		if tb.codec != nil {
			dst := make([]byte, tb.codec.EncodeBound())
			if n, err := tb.codec.Encode(dst, row); err == nil {
				stored = dst[:n]
			} else if !errors.Is(err, codec.ErrIncompressible) {
				t.Fatal(err)
			}
		}
		tb.rows, tb.stored = append(tb.rows, row), append(tb.stored, stored)
	}
	return tb
}

func (tb *table) compressed(row int) bool { return len(tb.stored[row]) < tb.rowBytes }

// checkShape fails when the table does not exercise both ways of storing a row.
func (tb *table) checkShape(t testing.TB) {
	t.Helper()
	if tb.codec == nil || tb.rowBytes < 8 {
		return
	}
	n := 0
	for r := range tb.rows {
		if tb.compressed(r) {
			n++
		}
	}
	if n == 0 || n == len(tb.rows) {
		t.Fatalf("rows of %d bytes: %d of %d are compressed, want some and not all", tb.rowBytes, n, len(tb.rows))
	}
}

// slabs places the rows in n slabs, the last slot of each ending where the tail slack begins. Bytes that belong to no
// row are the canary.
func (tb *table) slabs(t testing.TB, n int, canary byte) (slabs []guarded, at []slab.Location) {
	t.Helper()
	sizes := make([]int64, n)
	for r, s := range tb.stored {
		id := r % n
		if tb.compressed(r) {
			at = append(at, slab.Compressed(id, sizes[id], len(s)))
		} else {
			at = append(at, slab.Raw(id, sizes[id]))
		}
		sizes[id] += int64(slab.SlotBytes(len(s)))
	}
	for _, size := range sizes {
		slabs = append(slabs, alloc(t, size+slab.TailSlack, canary))
	}
	for r, l := range at {
		copy(slabs[l.Slab()].Bytes()[l.Offset():], tb.stored[r])
	}
	return slabs, at
}

// tier lays the rows out as a host tier, packed or in place. Bytes that belong to no row are the canary.
func (tb *table) tier(t testing.TB, packed bool, canary byte) (rows HostRows, mem guarded) {
	t.Helper()
	n := int64(len(tb.rows))
	if !packed {
		stride := int64(tb.rowBytes+3) &^ 3
		mem = alloc(t, n*stride+slab.TailSlack, canary)
		rows = HostRows{Mem: mem.Buffer, Stride: stride, RowBytes: tb.rowBytes}
		if tb.codec != nil {
			rows.Compressed = wordBuffer(make([]uint64, (n+63)/64))
		}
		for r, s := range tb.stored {
			copy(mem.Bytes()[int64(r)*stride:], s)
			if tb.compressed(r) {
				view[uint64](rows.Compressed)[r>>6] |= 1 << (r & 63)
			}
		}
		return rows, mem
	}
	index := make([]uint64, n)
	size := int64(0)
	for r, s := range tb.stored {
		l := slab.Raw(0, size)
		if tb.compressed(r) {
			l = slab.Compressed(0, size, len(s))
		}
		index[r] = uint64(l)
		size += int64(len(s)+3) &^ 3
	}
	mem = alloc(t, size+slab.TailSlack, canary)
	for r, s := range tb.stored {
		copy(mem.Bytes()[slab.Location(index[r]).Offset():], s)
	}
	return HostRows{Mem: mem.Buffer, Index: wordBuffer(index), RowBytes: tb.rowBytes}, mem
}

// buffers makes a batch's memory: hits at the front of found and misses at its back, as Lookup leaves them.
func buffers(t testing.TB, hits, misses []Found) (found, counters guarded) {
	t.Helper()
	found, counters = alloc(t, int64(len(hits)+len(misses))*FoundBytes, 0xf0), newCounters(t)
	f := FoundView(found.Buffer)
	copy(f, hits)
	copy(f[len(hits):], misses)
	c := CountersView(counters.Buffer)
	c.Hits, c.Misses = uint32(len(hits)), uint32(len(misses))
	return found, counters
}

// output returns the output of a batch of n rows; rows that no kernel writes keep the canary.
func output(t testing.TB, n, rowBytes int) guarded { return alloc(t, int64(n)*int64(rowBytes), 0xee) }

// checkOutput holds row i of the output against want[i]; nil means that nothing was to be written.
func checkOutput(t testing.TB, out guarded, rowBytes int, want [][]byte) {
	t.Helper()
	out.check(t, "output")
	untouched := bytes.Repeat([]byte{out.canary}, rowBytes)
	for i, w := range want {
		if w == nil {
			w = untouched
		}
		if got := out.Bytes()[i*rowBytes:][:rowBytes]; !bytes.Equal(got, w) {
			t.Fatalf("rows of %d bytes, batch of %d: row at position %d is\n%x, want\n%x", rowBytes, len(want), i, got, w)
		}
	}
}

// wordBuffer is memory that holds the words.
func wordBuffer(words []uint64) device.Buffer {
	return device.HostBuffer(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words)))
}
