package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// rowsSource is a RangedSource of rows in memory.
type rowsSource struct {
	data     []byte
	rowBytes int
	next     int
}

func (s *rowsSource) Rows() int     { return len(s.data) / s.rowBytes }
func (s *rowsSource) RowBytes() int { return s.rowBytes }
func (s *rowsSource) Close() error  { return nil }

func (s *rowsSource) Read(dst []byte) (int, error) {
	if s.next == s.Rows() {
		return 0, io.EOF
	}
	n := copy(dst, s.data[s.next*s.rowBytes:]) / s.rowBytes
	s.next += n
	return n, nil
}

func (s *rowsSource) ReadFrom(row int64, dst []byte) error {
	if copy(dst, s.data[int(row)*s.rowBytes:]) != len(dst) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// inOrder hides ReadFrom.
type inOrder struct{ Source }

// floats returns rows of float32 that ibp shrinks, some of them random bits, which it does not.
func floats(rows, columns int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, rows*columns*4)
	for range rows {
		random := r.IntN(16) == 0
		for j := range columns {
			v := math.Float32bits(float32(r.NormFloat64()) * float32(j+1) / 100)
			if random {
				v = r.Uint32()
			}
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b
}

// defaults are those of tests: no codec is trained unless the test names one.
func defaults(o PackOptions) PackOptions {
	o.Codec, o.DType = cmp.Or(o.Codec, "none"), cmp.Or(o.DType, dtype.Float32)
	return o
}

// groupsOf bounds the bytes of groups during a test.
func groupsOf(t testing.TB, bytes int) {
	old := groupBytes
	groupBytes = bytes
	t.Cleanup(func() { groupBytes = old })
}

// packMemory packs rows to memory.
func packMemory(t testing.TB, data []byte, rowBytes int, o PackOptions) *MemoryStore {
	t.Helper()
	place := NewMemory()
	o = defaults(o)
	if _, err := Pack(t.Context(), func() (Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }, place.Writer(), o); err != nil {
		t.Fatal(err)
	}
	s, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openStores opens a table that is closed with the test.
func openStores(t testing.TB, stores ...Store) *Table {
	t.Helper()
	table, err := OpenStores(t.Context(), stores...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// readAll reads rows and returns them decoded; failed rows have an error instead.
func readAll(t testing.TB, ctx context.Context, table *Table, rows []int64) ([][]byte, []error, ReadStats) {
	t.Helper()
	got, errs, visits := make([][]byte, len(rows)), make([]error, len(rows)), make([]int, len(rows))
	var mu sync.Mutex
	stats := table.ReadRows(ctx, rows, func(i int, stored []byte, compressed bool, err error) {
		row := make([]byte, table.Manifest().RowBytes)
		if err == nil && compressed {
			_, err = table.Codec().Decode(row, stored)
		} else if err == nil {
			copy(row, stored)
		}
		mu.Lock()
		defer mu.Unlock()
		visits[i]++
		if errs[i] = err; err == nil {
			got[i] = row
		}
	})
	for i, n := range visits {
		if n != 1 {
			t.Fatalf("index %d of the call was visited %d times", i, n)
		}
	}
	return got, errs, stats
}

// expectRows reads rows and compares them with data.
func expectRows(t testing.TB, table *Table, data []byte, rows []int64) ReadStats {
	t.Helper()
	got, errs, stats := readAll(t, t.Context(), table, rows)
	n := table.Manifest().RowBytes
	for i, row := range rows {
		if errs[i] != nil {
			t.Fatalf("row %d: %v", row, errs[i])
		}
		if !bytes.Equal(got[i], data[int(row)*n:][:n]) {
			t.Fatalf("row %d differs from its source", row)
		}
	}
	return stats
}

// all returns the numbers of all rows, shuffled.
func all(rows int) []int64 {
	n := make([]int64, rows)
	for i, row := range rand.New(rand.NewPCG(3, 3)).Perm(rows) {
		n[i] = int64(row)
	}
	return n
}

// TestReadRows_GivesBackWhatWasPacked: rows of all lengths, raw and encoded, through every stage.
func TestReadRows_GivesBackWhatWasPacked(t *testing.T) {
	groupsOf(t, 2<<20)
	for _, c := range []struct {
		rows, columns int
		o             PackOptions
	}{
		{1, 1, PackOptions{Codec: "none"}},
		{5000, 3, PackOptions{Codec: "ibp4"}},
		{9000, 64, PackOptions{Codec: "ibp4", Stage: "none"}}, // two groups
		{3000, 32, PackOptions{Codec: "auto", PageBytes: 64 << 10}},
		{9000, 100, PackOptions{Codec: "none", Stage: "zstd", PageBytes: 1 << 20}},
		{20, 200_000, PackOptions{Codec: "none", Stage: "lz4", PageBytes: 64 << 10}}, // rows longer than a page
	} {
		t.Run(fmt.Sprintf("%dx%d_%s_%s", c.rows, c.columns, c.o.Codec, c.o.Stage), func(t *testing.T) {
			data := floats(c.rows, c.columns, 1)
			table := openStores(t, packMemory(t, data, 4*c.columns, c.o))
			stats := expectRows(t, table, data, all(c.rows))
			m := table.Manifest()
			if s := stats.Stores[0]; s.Pages != int64(m.Pages) || s.Bytes != m.PageTotal || stats.Rows != int64(c.rows) {
				t.Errorf("%+v of %d pages, %d bytes", stats, m.Pages, m.PageTotal)
			}
			if most := max(m.PageBytes, pageHeader+4+m.RowBytes); m.LongestPage > most {
				t.Errorf("a page has %d bytes, more than %d", m.LongestPage, most)
			}
		})
	}
}

// TestReadRows_ShortPages: rows of pages of a block are read, each by a read of one block, and neighbours by one read.
func TestReadRows_ShortPages(t *testing.T) {
	const rowBytes = 260
	data := floats(20_000, rowBytes/4, 6)
	dir := filepath.Join(t.TempDir(), "t")
	m := packFiles(t, dir, data, rowBytes, PackOptions{PageBytes: MinPageBytes})
	if m.PageBytes != 4096 || m.LongestPage > 4096 || m.Pages < 20_000*rowBytes/4096 {
		t.Errorf("%+v", m)
	}
	table, err := Open(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	expectRows(t, table, data, all(20_000))
	some := []int64{19_999, 0, 1, 12_345, 7_000}
	if stats := expectRows(t, table, data, some); stats.Stores[0].Pages != 4 || stats.Stores[0].Bytes > 4*4096 {
		t.Errorf("%+v", stats)
	}
	if _, err := Pack(t.Context(), func() (Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }, NewMemory().Writer(),
		defaults(PackOptions{PageBytes: MinPageBytes - 1})); err == nil || err.Error() != "pages: page (4095 bytes) must have 4096 to 1048576" {
		t.Errorf("%v", err)
	}
}

// TestReadRows_PagesOnce: rows of one page, asked for many times, cost one page.
func TestReadRows_PagesOnce(t *testing.T) {
	data := floats(9000, 100, 2)
	table := openStores(t, packMemory(t, data, 400, PackOptions{Codec: "ibp4"}))
	stats := expectRows(t, table, data, []int64{7, 7, 1, 7, 8999, 2, 8999})
	if s := stats.Stores[0]; s.Pages != 2 || stats.Rows != 7 {
		t.Errorf("%+v", stats)
	}
}

func TestReadRows_RowsThatThereAreNoneOf(t *testing.T) {
	data := floats(100, 4, 3)
	table := openStores(t, packMemory(t, data, 16, PackOptions{Name: "x"}))
	_, errs, stats := readAll(t, t.Context(), table, []int64{-1, 100, 99})
	if errs[0] == nil || errs[1] == nil || errs[2] != nil || stats.Failed != 2 || stats.Rows != 1 {
		t.Errorf("%v, %+v", errs, stats)
	}
	if want := "pages: table x: row (100) must be 0 to 99"; errs[1].Error() != want {
		t.Errorf("%q, want %q", errs[1], want)
	}
}

// TestReadRows_NextStore: pages that a store lacks or has corrupt come from the next; those that none has fail, and no others.
func TestReadRows_NextStore(t *testing.T) {
	data := floats(9000, 100, 4)
	o := PackOptions{Name: "x", Codec: "rank", PageBytes: 64 << 10}
	a, b := packMemory(t, data, 400, o), packMemory(t, data, 400, o)
	lost := errors.New("lost")
	a.Page(1)[200] ^= 1        // corrupt
	copy(a.Page(2), a.Page(3)) // another page
	a.Fault = func(_ context.Context, page uint32) error {
		if page >= 4 && page < 7 {
			return lost
		}
		return nil
	}
	table := openStores(t, a, b)
	stats := expectRows(t, table, data, all(9000))
	if stats.Stores[0].Failed != 5 || stats.Stores[1].Pages != 5 || stats.Stores[1].Failed != 0 {
		t.Errorf("%+v", stats)
	}
	b.Page(1)[100] ^= 1
	b.Page(5)[100] ^= 1
	got, errs, stats := readAll(t, t.Context(), table, all(9000))
	failed := int64(0)
	for i, row := range all(9000) {
		page := table.PageOf(row)
		if bad := page == 1 || page == 5; bad != (errs[i] != nil) {
			t.Fatalf("row %d of page %d: %v", row, page, errs[i])
		}
		if errs[i] == nil && !bytes.Equal(got[i], data[row*400:][:400]) {
			t.Fatalf("row %d is wrong", row)
		}
		if errs[i] != nil {
			failed++
			if !errors.Is(errs[i], ErrCorrupt) || page == 5 && !errors.Is(errs[i], lost) {
				t.Fatalf("row %d: %v", row, errs[i])
			}
			if p, ok := errors.AsType[*PageError](errs[i]); !ok || p.Page != page || p.Table != "x" || p.Store != "memory" {
				t.Fatalf("row %d: %v", row, errs[i])
			}
		}
	}
	if stats.Failed != failed || stats.Rows != 9000-failed || failed == 0 {
		t.Errorf("%+v, %d failed", stats, failed)
	}
}

// TestReadRows_ContextEnds: a call whose context ends while pages are under way returns, with errors for the rows that had not arrived.
func TestReadRows_ContextEnds(t *testing.T) {
	data := floats(9000, 100, 5)
	s := packMemory(t, data, 400, PackOptions{PageBytes: 64 << 10})
	ctx, cancel := context.WithCancel(t.Context())
	s.Fault = func(ctx context.Context, page uint32) error {
		if page == 3 {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	table := openStores(t, s)
	_, errs, _ := readAll(t, ctx, table, all(9000))
	for i, row := range all(9000) {
		if page := table.PageOf(row); (page >= 3) != errors.Is(errs[i], context.Canceled) {
			t.Fatalf("row %d of page %d: %v", row, page, errs[i])
		}
	}
	s.Fault = nil
	expectRows(t, table, data, all(9000))
}

// TestOpenStores_AnotherTable: stores of different contents are refused.
func TestOpenStores_AnotherTable(t *testing.T) {
	o := PackOptions{Name: "x", Codec: "ibp4"}
	a := packMemory(t, floats(900, 100, 6), 400, o)
	other := floats(900, 100, 6)
	other[777] ^= 1
	for want, s := range map[string]Store{
		`memory: pages: table ("y") must be "x"`:                                                            packMemory(t, floats(900, 100, 6), 400, PackOptions{Name: "y", Codec: "ibp4"}),
		"memory: pages: table x: 800 rows of 400 bytes of float32 must be 900 rows of 400 bytes of float32": packMemory(t, floats(800, 100, 6), 400, o),
		"memory: pages: table x: codec (none) must be ibp4":                                                 packMemory(t, floats(900, 100, 6), 400, PackOptions{Name: "x", Codec: "none"}),
		"memory: pages: table x: contents differ from those of the same table in the other store":           packMemory(t, other, 400, o),
	} {
		if _, err := OpenStores(t.Context(), a, s); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestOpenStores_OrderOutside: an order with positions that there are none of is refused, also if its checksum is right.
func TestOpenStores_OrderOutside(t *testing.T) {
	data := floats(100, 4, 1)
	s := packMemory(t, data, 16, PackOptions{Order: OrderByCount(make([]uint32, 100))})
	binary.LittleEndian.PutUint32(s.g.parts[PartOrder][4*7:], 100)
	s.g.manifest.Parts[PartOrder] = sumOf(s.g.parts[PartOrder])
	if _, err := OpenStores(t.Context(), s); err == nil || !strings.Contains(err.Error(), "position (100) of row 7 must be below 100") {
		t.Errorf("%v", err)
	}
}

// TestPack_InOrder: a source that can only be read in order gives the same pages.
func TestPack_InOrder(t *testing.T) {
	groupsOf(t, 200_000)
	data := floats(6000, 32, 7)
	o := PackOptions{Codec: "rank", Stage: "auto", DType: dtype.Float32, Workers: 3}
	a := packMemory(t, data, 128, o)
	place := NewMemory()
	opened := 0
	_, err := Pack(t.Context(), func() (Source, error) {
		opened++
		return inOrder{&rowsSource{data: data, rowBytes: 128}}, nil
	}, place.Writer(), o)
	if err != nil || opened != 2 {
		t.Fatal(err, opened)
	}
	b, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Manifest().Same(b.Manifest()); err != nil {
		t.Error(err)
	}
	o.Order = []uint32{1, 0}
	if _, err := Pack(t.Context(), func() (Source, error) { return inOrder{&rowsSource{data: data, rowBytes: 128}}, nil }, place.Writer(), o); err == nil {
		t.Error("a source that can only be read in order was ordered")
	}
}

func TestPack_Ordered(t *testing.T) {
	groupsOf(t, 200_000)
	data := floats(6000, 32, 8)
	order := make([]uint32, 6000)
	for i, row := range rand.New(rand.NewPCG(9, 9)).Perm(len(order)) {
		order[i] = uint32(row)
	}
	for i := range uint32(100) { // neighbours
		j := 0
		for order[j] != i {
			j++
		}
		order[i], order[j] = order[j], order[i]
	}
	table := openStores(t, packMemory(t, data, 128, PackOptions{Codec: "rank", Order: order}))
	expectRows(t, table, data, all(len(order)))
	for position, row := range order {
		if got := table.Position(int64(row)); got != int64(position) {
			t.Fatalf("row %d has position %d, want %d", row, got, position)
		}
	}
	first := make([]int64, 50)
	for i := range first {
		first[i] = int64(order[i])
	}
	if stats := expectRows(t, table, data, first); stats.Stores[0].Pages != 1 {
		t.Errorf("the first rows lie in %d pages", stats.Stores[0].Pages)
	}
	for _, bad := range [][]uint32{order[1:], append([]uint32{order[1]}, order[1:]...), append([]uint32{6000}, order[1:]...)} {
		_, err := Pack(t.Context(), func() (Source, error) { return &rowsSource{data: data, rowBytes: 128}, nil }, NewMemory().Writer(),
			PackOptions{DType: dtype.Float32, Order: bad})
		if err == nil {
			t.Error("an order that is no permutation was taken")
		}
	}
}
