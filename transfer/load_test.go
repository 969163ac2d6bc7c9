package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

var modes = []Mode{InPlace, Packed}

// TestLoad_EveryRowReadsBack loads tables of all short row lengths and a few long ones, in both modes, and holds the
// totals against the rows.
func TestLoad_EveryRowReadsBack(t *testing.T) {
	race.SkipSequential(t)
	lengths := []int{127, 128, 511, 512, 1001, 20_001, 1_000_003, slab.MaxRowBytes} // the longest take several reads
	for n := 1; n <= 70; n++ {
		lengths = append(lengths, n)
	}
	for _, rowBytes := range lengths {
		rows := max(9, min(200, 1<<15/rowBytes))
		data := rowsOf(rows, rowBytes, uint64(rowBytes))
		for _, name := range []string{"none", "auto", "ibp4", "ibp8"} {
			if name == "auto" && (rowBytes > 1001 || rowBytes%9 != 1) || rowBytes > 100_000 && name != "none" {
				continue // training takes long
			}
			for _, mode := range modes {
				t.Run(fmt.Sprintf("row=%d/codec=%s/tier=%v", rowBytes, name, mode), func(t *testing.T) {
					tier := load(t, data, rowBytes, Options{Codec: name, Mode: mode, Seed: 1})
					if tier.Rows() != int64(rows) || tier.RowBytes() != rowBytes || tier.Mode() != mode {
						t.Fatalf("%d rows of %d bytes, %v", tier.Rows(), tier.RowBytes(), tier.Mode())
					}
					if (tier.Codec() == nil) != (name == "none") && name != "auto" {
						t.Fatalf("codec is %v", tier.Codec())
					}
					checkRows(t, tier, data)
					checkTotals(t, tier)
					checkMemory(t, tier)
					if s := tier.Totals(); rowBytes >= 16 && name != "none" && (s.RawRows == 0 || s.RawRows == s.Rows) {
						t.Fatalf("%d of %d rows are raw, want some and not all", s.RawRows, s.Rows)
					}
				})
			}
		}
	}
}

// checkTotals adds up the rows one by one.
func checkTotals(t *testing.T, tier *Tier) {
	t.Helper()
	want := Totals{Rows: tier.Rows(), RawBytes: tier.Rows() * int64(tier.RowBytes())}
	places := map[Place]int64{}
	for r := range tier.Rows() {
		stored, compressed, err := tier.Stored(r)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := tier.SlotBytes(r)
		if err != nil || slot < len(stored) || slot >= len(stored)+slab.Align || slot%slab.Align != 0 {
			t.Fatalf("row %d of %d stored bytes takes a slot of %d, %v", r, len(stored), slot, err)
		}
		if !compressed {
			want.RawRows++
		}
		want.StoredBytes += int64(len(stored))
		p, n, shared := sharedAt(tier, r)
		if !shared || places[p] == 0 {
			want.SlotBytes += int64(slot)
		}
		if shared {
			want.EqualRows++
			if places[p]++; places[p] > n || tier.mode == Packed && uint32(p>>packShift) != tier.packs {
				t.Fatalf("place %v has %d rows, want %d", p, places[p], n)
			}
		}
	}
	for r := range tier.Rows() {
		if p, n, shared := sharedAt(tier, r); shared && places[p] != n {
			t.Fatalf("place %v has %d rows, want %d", p, places[p], n)
		}
	}
	if n := int64(len(inOnePlace(tier))); tier.mode == Packed && want.EqualRows != n {
		t.Fatalf("%d rows say that they share a place, want %d", want.EqualRows, n)
	}
	if tier.Totals() != want {
		t.Fatalf("totals are %+v, want %+v", tier.Totals(), want)
	}
}

// sharedAt is Shared without the row of zeros behind the rows of a packed tier.
func sharedAt(tier *Tier, row int64) (p Place, rows int64, ok bool) {
	p, rows, ok = tier.Shared(row)
	return p, rows, ok && (tier.mode == InPlace || row < tier.owned)
}

// inOnePlace returns the rows of a packed tier that lie at places of several rows.
func inOnePlace(tier *Tier) map[int]bool {
	shared, first := map[int]bool{}, map[int64]int{}
	for r, l := range tier.locations() {
		if before, ok := first[l.Offset()]; ok {
			shared[r], shared[before] = true, true
		} else {
			first[l.Offset()] = r
		}
	}
	return shared
}

// checkMemory checks where the rows lie: index or stride and bits, and the slack behind the last.
func checkMemory(t *testing.T, tier *Tier) {
	t.Helper()
	rows, rowBytes := tier.Rows(), tier.RowBytes()
	end := int64(0)
	if tier.Mode() == InPlace {
		end = rows * ((int64(rowBytes) + 3) / 4 * 4)
		want := (rows + 63) / 64 * 8
		if tier.Codec() == nil {
			want = 0
		}
		if tier.BitmaskBytes() != want || tier.IndexBytes() != 0 {
			t.Fatalf("bits take %d bytes, want %d; index %d, want 0", tier.BitmaskBytes(), want, tier.IndexBytes())
		}
		set := int64(0)
		for _, b := range tier.host.Compressed.Bytes() {
			for ; b != 0; b &= b - 1 {
				set++
			}
		}
		s := tier.Totals()
		if set != s.Rows-s.RawRows {
			t.Fatalf("%d bits are set, want %d", set, s.Rows-s.RawRows)
		}
		if coded := s.StoredBytes - s.RawRows*int64(rowBytes); int64(tier.host.Ahead) != coded/max(1, set) {
			t.Fatalf("%d bytes are read ahead, want the mean of %d rows of %d bytes", tier.host.Ahead, set, coded)
		}
	} else {
		if tier.IndexBytes() != 8*rows || tier.BitmaskBytes() != 0 {
			t.Fatalf("index takes %d bytes, want %d; bits %d, want 0", tier.IndexBytes(), 8*rows, tier.BitmaskBytes())
		}
		shared := inOnePlace(tier)
		for r, l := range unsafe.Slice((*slab.Location)(unsafe.Pointer(unsafe.SliceData(tier.host.Index.Bytes()))), rows) {
			if shared[r] && l.Valid() && l.Slab() == 0 && l.Offset() < end { // at an earlier row's place
				continue
			}
			if !l.Valid() || l.Slab() != 0 || l.Offset() != end {
				t.Fatalf("row %d lies at %v, want offset %d", r, l, end)
			}
			end += (int64(l.Stored(rowBytes)) + 3) / 4 * 4
		}
	}
	if tier.HostBytes() != end+slab.TailSlack {
		t.Fatalf("rows take %d bytes, want %d and the tail slack", tier.HostBytes(), end)
	}
}

func TestLoad_PackedTakesLessHostMemory(t *testing.T) {
	data := rowsOf(2000, 256, 2)
	inPlace, packed := load(t, data, 256, Options{Codec: "ibp4"}), load(t, data, 256, Options{Codec: "ibp4", Mode: Packed})
	if a, b := inPlace.HostBytes(), packed.HostBytes()+packed.IndexBytes(); b >= a*9/10 {
		t.Errorf("packed takes %d bytes with its index, in place %d", b, a)
	}
	if a, b := inPlace.Totals(), packed.Totals(); a != b {
		t.Errorf("totals differ: in place %+v, packed %+v", a, b)
	}
}

// TestLoad_WorkersGiveIdenticalBytes also has several parts of rows for each worker, and fewer than workers.
func TestLoad_WorkersGiveIdenticalBytes(t *testing.T) {
	for _, rows := range []int{1, 63, 64, 65, 1023, 1024, 1025, 9001} {
		data := rowsOf(rows, 36, uint64(rows))
		for _, mode := range modes {
			first := load(t, data, 36, Options{Codec: "ibp4", Mode: mode, Workers: 1})
			for workers := 0; workers <= 4; workers++ {
				tier := load(t, data, 36, Options{Codec: "ibp4", Mode: mode, Workers: workers})
				for _, b := range []struct {
					what string
					a, b device.Buffer
				}{
					{"rows", first.host.Mem, tier.host.Mem},
					{"bits", first.host.Compressed, tier.host.Compressed},
					{"index", first.host.Index, tier.host.Index},
				} {
					if !bytes.Equal(b.a.Bytes(), b.b.Bytes()) {
						t.Errorf("%d rows, %v: %s of %d workers differ from those of one", rows, mode, b.what, workers)
					}
				}
				if first.Totals() != tier.Totals() {
					t.Errorf("%d rows, %v: totals of %d workers are %+v, of one %+v", rows, mode, workers, tier.Totals(), first.Totals())
				}
			}
			checkRows(t, first, data)
		}
	}
}

// TestLoad_SeedPicksTheSample: the codec is the one that the seed's sample trains.
func TestLoad_SeedPicksTheSample(t *testing.T) {
	const rows, rowBytes = 30_000, 8
	r := rand.New(rand.NewPCG(3, 3))
	data := make([]byte, rows*rowBytes)
	for i := range data {
		for bit := range 8 { // every bit is nearly always zero: chance decides which ones are worth a mask
			if r.IntN(33) == 0 {
				data[i] |= 1 << bit
			}
		}
	}
	metadata := func(c codec.Codec) string {
		b, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	seen := map[string]bool{}
	for seed := range uint64(5) {
		c, err := registry.Train("ibp8", codec.Sample(data, rows, rowBytes, rowBytes, seed), rowBytes, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		want := metadata(c)
		seen[want] = true
		for range 2 {
			if got := metadata(load(t, data, rowBytes, Options{Codec: "ibp8", Seed: seed}).Codec()); got != want {
				t.Fatalf("seed %d: codec is not the one of its sample", seed)
			}
		}
	}
	if len(seen) < 5 {
		t.Error("some seeds train the same codec: the test cannot tell them apart")
	}
}

func TestLoad_SourcesThatReadOddly(t *testing.T) {
	for _, rowBytes := range []int{1, 7, 8} { // copied and read straight into place
		data := rowsOf(100, rowBytes, 4)
		for name, src := range map[string]*fake{
			"one row at a time":     newFake(data, rowBytes, 1, 100, io.EOF),
			"three rows at a time":  newFake(data, rowBytes, 3, 100, io.EOF),
			"EOF with the last row": {Source: SourceOf(data, rowBytes), rowBytes: rowBytes, most: 30, left: 100, end: io.EOF, withRows: true},
		} {
			for _, mode := range modes {
				src := *src
				src.Source = SourceOf(data, rowBytes)
				tier, err := Load(newDevice(), &src, Options{Codec: "auto", Mode: mode})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				checkRows(t, tier, data)
				tier.Close()
				if src.partial {
					t.Errorf("%s: a Read was asked for something else than whole rows", name)
				}
			}
		}
	}
}

func TestLoad_SourcesThatFail(t *testing.T) {
	for _, rowBytes := range []int{1, 7, 8} {
		data := rowsOf(100, rowBytes, 5)
		for name, c := range map[string]struct {
			src  *fake
			want string
			is   error
		}{
			"empty":             {newFake(data, rowBytes, 10, 0, io.EOF), "transfer: source ended after 0 of 100 rows", nil},
			"ends early":        {newFake(data, rowBytes, 10, 42, io.EOF), "transfer: source ended after 42 of 100 rows", nil},
			"ends one early":    {newFake(data, rowBytes, 100, 99, io.EOF), "transfer: source ended after 99 of 100 rows", nil},
			"stalls":            {newFake(data, rowBytes, 10, 42, nil), "transfer: source ended after 42 of 100 rows", nil},
			"wrapped EOF":       {newFake(data, rowBytes, 10, 42, fmt.Errorf("npy: %w", io.EOF)), "transfer: source ended after 42 of 100 rows", nil},
			"fails at once":     {newFake(data, rowBytes, 10, 0, errSource), "transfer: source at row 0 of 100: disk on fire", errSource},
			"fails midway":      {newFake(data, rowBytes, 10, 42, errSource), "transfer: source at row 42 of 100: disk on fire", errSource},
			"fails with a row":  {&fake{Source: SourceOf(data, rowBytes), rowBytes: rowBytes, most: 10, left: 42, end: errSource, withRows: true}, "transfer: source at row 40 of 100: disk on fire", errSource},
			"fails at the last": {&fake{Source: SourceOf(data, rowBytes), rowBytes: rowBytes, most: 10, left: 100, end: errSource, withRows: true}, "transfer: source at row 90 of 100: disk on fire", errSource},
		} {
			l := newLedger(-1)
			tier, err := Load(l, c.src, Options{Codec: "ibp4"})
			if tier != nil || err == nil || err.Error() != c.want || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s: got %v, %v, want %s", name, tier, err, c.want)
			}
			if len(l.open) != 0 {
				t.Errorf("%s: memory left behind: %v", name, l.open)
			}
		}
	}
}

// partly is a source of rows in memory that cannot read one of them.
type partly struct {
	Ranged
	rowBytes int
	bad      int64
}

func (p partly) ReadFrom(row int64, dst []byte) error {
	if n := int64(len(dst) / p.rowBytes); p.bad >= row && p.bad < row+n {
		return errSource
	}
	return p.Ranged.ReadFrom(row, dst)
}

// TestLoad_Ranged reads tables of several parts by several goroutines.
func TestLoad_Ranged(t *testing.T) {
	for _, rowBytes := range []int{60, 64} { // copied and read straight into place
		rows := 3*readPart/rowBytes + 5
		data := rowsOf(rows, rowBytes, 5)
		src := SourceOf(data, rowBytes).(Ranged)
		tier, err := Load(newDevice(), src, Options{Codec: "none"})
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, tier, data)
		tier.Close()
		l := newLedger(-1)
		_, err = Load(l, partly{src, rowBytes, int64(rows - 1)}, Options{Codec: "none"})
		want := fmt.Sprintf("transfer: source at rows from %d of %d: disk on fire", 3*(readPart/rowBytes), rows)
		if !errors.Is(err, errSource) || err.Error() != want || len(l.open) != 0 {
			t.Errorf("error %v, want %s; memory left behind: %v", err, want, l.open)
		}
	}
}

func TestLoad_UnknownCodec(t *testing.T) {
	l := newLedger(-1)
	if _, err := Load(l, SourceOf(make([]byte, 8), 4), Options{Codec: "zip"}); err == nil {
		t.Error("no error")
	}
	if len(l.open) != 0 {
		t.Errorf("memory left behind: %v", l.open)
	}
}

// TestLoad_GivesMemoryBack refuses each allocation in turn: whatever was taken before is given back, as it is by Close.
func TestLoad_GivesMemoryBack(t *testing.T) {
	data := rowsOf(500, 64, 6)
	for _, mode := range modes {
		for _, name := range []string{"none", "ibp4"} {
			for refuse := 0; ; refuse++ {
				l := newLedger(refuse)
				tier, err := Load(l, SourceOf(data, 64), Options{Codec: name, Mode: mode})
				if err == nil {
					tier.Close()
					tier.Close()
				} else if !errors.Is(err, device.ErrOutOfMemory) {
					t.Fatal(err)
				}
				if len(l.open) != 0 || l.twice != 0 {
					t.Errorf("%v, %s, allocation %d refused: %v left behind, %d given back twice", mode, name, refuse, l.open, l.twice)
				}
				if err == nil {
					break
				}
			}
		}
	}
}

func TestSourceOf_ReadsInOrder(t *testing.T) {
	data := []byte{1, 2, 3, 4, 5, 6, 7}
	src := SourceOf(data, 2) // the last byte is no row
	if src.Rows() != 3 || src.RowBytes() != 2 {
		t.Fatalf("%d rows of %d bytes", src.Rows(), src.RowBytes())
	}
	dst := make([]byte, 4)
	for _, want := range []struct {
		n   int
		err error
	}{{2, nil}, {1, nil}, {0, io.EOF}, {0, io.EOF}} {
		if n, err := src.Read(dst); n != want.n || err != want.err {
			t.Errorf("Read = %d, %v, want %d, %v", n, err, want.n, want.err)
		}
	}
}

// rangedFake is a Ranged that fails from a row on.
type rangedFake struct {
	Ranged
	bad   int64
	reads atomic.Int64 // of parts, since the first that failed
}

func (f *rangedFake) ReadFrom(row int64, dst []byte) error {
	if row+int64(len(dst)/f.RowBytes()) > f.bad {
		f.reads.Add(1)
		return errSource
	}
	if f.reads.Load() > 0 {
		f.reads.Add(1)
	}
	return f.Ranged.ReadFrom(row, dst)
}

// TestLoad_RangedStopsAtErrors: an error ends the reading of all goroutines and names the rows.
func TestLoad_RangedStopsAtErrors(t *testing.T) {
	const rowBytes = 1 << 16
	const parts = 40
	data := make([]byte, parts*readPart)
	f := &rangedFake{Ranged: SourceOf(data, rowBytes).(Ranged), bad: 3 * readPart / rowBytes}
	_, err := Load(newDevice(), f, Options{Codec: "none"})
	if !errors.Is(err, errSource) || !strings.Contains(err.Error(), "transfer: source at rows from ") || !strings.Contains(err.Error(), " of 2560: ") {
		t.Fatal(err)
	}
	// Besides the first failure, each goroutine ends at most the part that it reads and one that it had taken.
	if n := f.reads.Load(); n > int64(2*runtime.GOMAXPROCS(0)) {
		t.Errorf("%d parts were read after the first failure", n)
	}
}

// TestLoad_Progress: progress ascends to the number of rows, from sources of both kinds and adopted memory alike.
func TestLoad_Progress(t *testing.T) {
	const rowBytes = 1 << 12
	data := make([]byte, 5*readPart+rowBytes)
	rows := int64(len(data) / rowBytes)
	for name, src := range map[string]Source{"ranged": SourceOf(data, rowBytes), "in order": newFake(data, rowBytes, 700, int(rows), nil)} {
		var told []int64
		tier, err := Load(newDevice(), src, Options{Codec: "none", Progress: func(rows int64) { told = append(told, rows) }})
		if err != nil {
			t.Fatal(err)
		}
		tier.Close()
		if !slices.IsSorted(told) || len(told) < 6 || told[0] < 1 || told[len(told)-1] != rows {
			t.Errorf("%s: %v", name, told)
		}
	}
}
