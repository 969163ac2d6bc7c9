package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

const modelRows = 3000

// lookupMap returns a map of table 3 and the same as a Go map: rows below 1000 have locations, rows from 1000 on were
// erased for each reason in turn, rows from 2000 on were never there. Table 4 has all rows.
func lookupMap(t testing.TB) (guarded, hashmap.Layout, map[int64]slab.Location) {
	t.Helper()
	var entries []hashmap.Entry
	model := map[int64]slab.Location{}
	for row := range int64(modelRows) {
		entries = append(entries, hashmap.Entry{Key: hashmap.Key(4, row), Location: slab.Raw(7, 16*row)})
		if row < 2000 {
			model[row] = slab.Compressed(int(row%8), 16*row, int(1+row))
			entries = append(entries, hashmap.Entry{Key: hashmap.Key(3, row), Location: model[row]})
		}
	}
	layout := hashmap.LayoutFor(int64(len(entries)))
	mem := alloc(t, layout.Bytes(), 0xaa)
	m := hashmap.View(mem.Bytes(), layout)
	if rejected, err := m.Build(entries); err != nil || len(rejected) != 0 {
		t.Fatalf("Build rejected %d, %v", len(rejected), err)
	}
	for row := int64(1000); row < 2000; row++ {
		why := slab.Reason(row % slab.NumReasons)
		model[row] = slab.NoLocation(why)
		m.Erase(hashmap.Key(3, row), why)
	}
	return mem, layout, model
}

func TestLookup_SplitsLikeAMap(t *testing.T) {
	mem, layout, model := lookupMap(t)
	r := rand.New(rand.NewPCG(1, 1))
	draws := map[string]func() int64{
		"hits":       func() int64 { return r.Int64N(1000) },
		"misses":     func() int64 { return 1000 + r.Int64N(2000) },
		"mixed":      func() int64 { return r.Int64N(modelRows) },
		"duplicates": func() int64 { return 999 + r.Int64N(2) },
	}
	for name, draw := range draws {
		for _, n := range batchSizes {
			for _, workers := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/batch=%d/workers=%d", name, n, workers), func(t *testing.T) {
					rows := make([]int64, n)
					for i := range rows {
						rows[i] = draw()
					}
					checkLookup(t, Lookup{Map: mem.Buffer, Layout: layout, Table: 3, Limit: modelRows, Peers: 0xa6}, rows, model, workers)
				})
			}
		}
	}
	mem.check(t, "hashmap")
}

// checkLookup runs the lookup on a batch, of int64 and then of int32 row numbers, and compares what it found with the model. Rows out of
// range are neither hits nor misses, and their output is zeros; nothing else is written there.
func checkLookup(t *testing.T, k Lookup, rows []int64, model map[int64]slab.Location, workers int) {
	t.Helper()
	batch := alloc(t, int64(len(rows))*8, 0xbb)
	copy(view[int64](batch.Buffer), rows)
	checkLookupOf(t, k, batch, rows, model, workers)

	k.Int32, batch, rows = true, alloc(t, int64(len(rows))*4, 0xbb), slices.Clone(rows)
	for i, row := range rows {
		rows[i] = max(math.MinInt32, min(row, math.MaxInt32)) // what is out of the table's range stays so
		view[int32](batch.Buffer)[i] = int32(rows[i])
	}
	checkLookupOf(t, k, batch, rows, model, workers)
}

// checkLookupOf is checkLookup for a batch whose memory holds rows.
func checkLookupOf(t *testing.T, k Lookup, batch guarded, rows []int64, model map[int64]slab.Location, workers int) {
	t.Helper()
	n := len(rows)
	const rowBytes = 12
	found, counters, out := alloc(t, int64(n)*FoundBytes, 0xf0), newCounters(t), output(t, n, rowBytes)
	k.Rows, k.Found, k.Counters, k.Out, k.RowBytes = batch.Buffer, found.Buffer, counters.Buffer, out.Buffer, rowBytes
	run(t, workers, &k)
	found.check(t, "found")
	counters.check(t, "counters")

	count := CountersView(counters.Buffer)
	seen := make([]bool, n)
	zeroed := make([][]byte, n)
	var want Counters
	for i, row := range rows {
		if row < 0 || row >= k.Limit {
			seen[i], zeroed[i] = true, make([]byte, rowBytes)
			if want.OutOfRange++; want.OutOfRange == 1 {
				want.NotFirst = ^uint32(i)
			}
		}
	}
	checkOutput(t, out, rowBytes, zeroed)
	if int(count.Hits)+int(count.Misses)+int(want.OutOfRange) != n {
		t.Fatalf("%d hits and %d misses of %d lookups, %d of them out of range", count.Hits, count.Misses, n, want.OutOfRange)
	}
	if want.OutOfRange > 0 && count.FirstOutOfRange() != slices.IndexFunc(zeroed, func(b []byte) bool { return b != nil }) {
		t.Fatalf("the first row out of range is said to be at %d", count.FirstOutOfRange())
	}
	for i, f := range FoundView(found.Buffer) {
		if int(count.Hits) <= i && i < n-int(count.Misses) {
			if untouched := (Found{0xf0f0f0f0f0f0f0f0, 0xf0f0f0f0, 0xf0f0f0f0}); f != untouched {
				t.Fatalf("found %d of %d, between %d hits and %d misses, was written", i, n, count.Hits, count.Misses)
			}
			continue
		}
		if int(f.Position) >= n || seen[f.Position] {
			t.Fatalf("position %d of %d is out of range or found twice", f.Position, n)
		}
		seen[f.Position] = true
		row := rows[f.Position]
		l, ok := model[row]
		if !ok {
			l = slab.NoLocation(slab.Cold)
		}
		if l == slab.NoLocation(slab.Cold) {
			switch {
			case isSet(k.Oversize, row):
				l = slab.NoLocation(slab.Oversize)
			case isSet(k.Rejected, row):
				l = slab.NoLocation(slab.Rejected)
			}
		}
		switch hit := i < int(count.Hits); {
		case hit != l.Valid():
			t.Fatalf("row %d (%v) lies at %d, with %d hits at the front", row, l, i, count.Hits)
		case hit:
			want.Hits++
			want.Peers += uint32(k.Peers) >> l.Slab() & 1
			if slab.Location(f.Word) != l || f.Reason != 0 {
				t.Fatalf("row %d was found at %v, want %v", row, slab.Location(f.Word), l)
			}
		default:
			want.Misses++
			want.Reasons[min(l.Reason(), slab.NumReasons-1)]++
			if int64(f.Word) != row || f.Reason != uint32(l.Reason()) {
				t.Fatalf("miss of row %d says row %d, reason %d, want reason %v", row, f.Word, f.Reason, l.Reason())
			}
		}
	}
	if *count != want {
		t.Fatalf("counters are %+v, want %+v", *count, want)
	}
}

func isSet(bits device.Buffer, row int64) bool {
	return bits.Size() != 0 && bits.Bytes()[row/8]>>(row%8)&1 != 0
}

// TestLookup_RowsOutOfRange has row numbers around both ends of the table and of their type, first in the batch or later.
func TestLookup_RowsOutOfRange(t *testing.T) {
	mem, layout, model := lookupMap(t)
	r := rand.New(rand.NewPCG(1, 2))
	outside := []int64{-1, modelRows, modelRows + 1, math.MinInt64, math.MaxInt64, math.MinInt32, math.MaxInt32, -modelRows, 1 << 32}
	for _, n := range batchSizes {
		for _, share := range []int{1, 2, 50} { // one in so many
			for _, workers := range []int{1, 4} {
				rows := make([]int64, n)
				for i := range rows {
					if rows[i] = r.Int64N(modelRows); r.IntN(share) == 0 {
						rows[i] = outside[r.IntN(len(outside))]
					}
				}
				checkLookup(t, Lookup{Map: mem.Buffer, Layout: layout, Table: 3, Limit: modelRows}, rows, model, workers)
			}
		}
	}
	mem.check(t, "hashmap")
}

// TestLookup_RowsThatTheMapNeverHeld: bits say why a row that the hashmap does not know is not there. What the hashmap
// knows counts for more, and oversize for more than rejected.
func TestLookup_RowsThatTheMapNeverHeld(t *testing.T) {
	mem, layout, model := lookupMap(t)
	r := rand.New(rand.NewPCG(1, 3))
	rejected, oversize := make([]uint64, (modelRows+63)/64), make([]uint64, (modelRows+63)/64)
	for i := range rejected {
		rejected[i], oversize[i] = r.Uint64(), r.Uint64()&r.Uint64()
	}
	rows := make([]int64, modelRows)
	for i, row := range r.Perm(modelRows) {
		rows[i] = int64(row)
	}
	for _, k := range []Lookup{
		{Rejected: wordBuffer(rejected)},
		{Oversize: wordBuffer(oversize)},
		{Rejected: wordBuffer(rejected), Oversize: wordBuffer(oversize)},
	} {
		k.Map, k.Layout, k.Table, k.Limit = mem.Buffer, layout, 3, modelRows
		checkLookup(t, k, rows, model, 4)
	}
}

// TestLookup_UnknownReasonStaysInside: a word of a later version's reason must not be counted outside the counters.
func TestLookup_UnknownReasonStaysInside(t *testing.T) {
	mem, layout, model := lookupMap(t)
	for row, why := range map[int64]slab.Reason{5: slab.NumReasons, 6: 255} {
		model[row] = slab.NoLocation(why)
		hashmap.View(mem.Bytes(), layout).Erase(hashmap.Key(3, row), why)
	}
	checkLookup(t, Lookup{Map: mem.Buffer, Layout: layout, Table: 3, Limit: modelRows}, []int64{4, 5, 6, 7}, model, 1)
}

// TestCounters_Layout pins the offsets that CUDA code shares.
func TestCounters_Layout(t *testing.T) {
	var c Counters
	var f Found
	for name, got := range map[string][2]uintptr{
		"Hits":            {unsafe.Offsetof(c.Hits), 0},
		"Misses":          {unsafe.Offsetof(c.Misses), 4},
		"Reasons":         {unsafe.Offsetof(c.Reasons), 8},
		"Corrupt":         {unsafe.Offsetof(c.Corrupt), 28},
		"CorruptPosition": {unsafe.Offsetof(c.CorruptPosition), 32},
		"OutOfRange":      {unsafe.Offsetof(c.OutOfRange), 36},
		"NotFirst":        {unsafe.Offsetof(c.NotFirst), 40},
		"HostBytes":       {unsafe.Offsetof(c.HostBytes), 48},
		"Word":            {unsafe.Offsetof(f.Word), 0},
		"Position":        {unsafe.Offsetof(f.Position), 8},
		"Reason":          {unsafe.Offsetof(f.Reason), 12},
	} {
		if got[0] != got[1] {
			t.Errorf("%s lies at %d, want %d", name, got[0], got[1])
		}
	}
}
