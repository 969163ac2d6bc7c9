package pages

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// updated is an Updates in memory.
type updated struct {
	rows       []int64
	stored     [][]byte
	compressed []bool
	fault      error
}

func (u *updated) Rows() []int64 { return u.rows }
func (u *updated) Read(i int, _ []byte) ([]byte, bool, error) {
	return u.stored[i], u.compressed[i], u.fault
}

// encode adds a row as the table stores it.
func (u *updated) encode(t *testing.T, table *Table, row int64, raw []byte) {
	t.Helper()
	p := packer{codec: table.Codec(), rowBytes: len(raw)}
	b := make([]byte, len(raw)+4096)
	e, err := p.store(b, raw)
	if err != nil {
		t.Fatal(err)
	}
	u.rows, u.stored, u.compressed = append(u.rows, row), append(u.stored, b[:e&^entryCompressed]), append(u.compressed, e&entryCompressed != 0)
}

// TestRewrite: the next generation has the updates, and all other rows as they were; groups without updates keep their pages.
func TestRewrite(t *testing.T) {
	race.SkipSequential(t)
	groupsOf(t, 200_000)
	filesOf(t, 300_000)
	const rows, columns = 9000, 32
	r := rand.New(rand.NewPCG(1, 1))
	for name, o := range map[string]PackOptions{
		"ibp4":    {Codec: "ibp4", PageBytes: 64 << 10},
		"raw":     {Codec: "none", Stage: "zstd", PageBytes: 64 << 10},
		"ordered": {Codec: "rank", Order: OrderByCount(func() []uint32 { c := make([]uint32, rows); c[77] = 1; return c }())},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "table")
			data := floats(rows, columns, 1)
			packFiles(t, dir, data, 4*columns, o)
			table := openDir(t, dir, FileOptions{})
			before := table.stores[0]
			changed, want := floats(rows, columns, 2), bytes.Clone(data)
			u := &updated{}
			for _, row := range append(r.Perm(3000)[:200], rows-1) {
				u.encode(t, table, int64(row), changed[row*4*columns:][:4*columns])
				copy(want[row*4*columns:], changed[row*4*columns:][:4*columns])
			}
			w, err := CreateFiles(dir)
			if err != nil {
				t.Fatal(err)
			}
			m, done, err := Rewrite(t.Context(), before, w, u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if done.Rows != 201 || done.Bytes > m.PageTotal || done.ChangedPages == 0 || done.ChangedPages > done.Pages || done.ChangedPages*2 > m.Pages || m.Generation != 2 {
				t.Errorf("%+v, %+v", done, m)
			}
			expectRows(t, table, data, all(rows)) // the reader of the old generation
			after := openDir(t, dir, FileOptions{})
			expectRows(t, after, want, all(rows))
			if _, err := Verify(t.Context(), after.stores[0], nil); err != nil {
				t.Error(err)
			}
			if before.Manifest().Encoding() != m.Encoding() {
				t.Error("the encoding changed")
			}
		})
	}
}

// TestRewrite_Refuses: updates that are no rows of the table, and those that cannot be read, leave the old generation.
func TestRewrite_Refuses(t *testing.T) {
	dir := t.TempDir()
	data := floats(5000, 32, 1)
	packFiles(t, dir, data, 128, PackOptions{Codec: "none"})
	table := openDir(t, dir, FileOptions{})
	row, gone := data[:128], errors.New("gone")
	for name, u := range map[string]*updated{
		"no such row": {rows: []int64{5000}, stored: [][]byte{row}, compressed: []bool{false}},
		"twice":       {rows: []int64{3, 3}, stored: [][]byte{row, row}, compressed: []bool{false, false}},
		"short":       {rows: []int64{3}, stored: [][]byte{row[:5]}, compressed: []bool{false}},
		"encoded":     {rows: []int64{3}, stored: [][]byte{row[:5]}, compressed: []bool{true}},
		"unreadable":  {rows: []int64{3}, stored: [][]byte{row}, compressed: []bool{false}, fault: gone},
	} {
		w, err := CreateFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Rewrite(t.Context(), table.stores[0], w, u, nil); err == nil || u.fault != nil && !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again := openDir(t, dir, FileOptions{}); again.Manifest().Generation != 1 {
		t.Errorf("generation %d", again.Manifest().Generation)
	}
}
