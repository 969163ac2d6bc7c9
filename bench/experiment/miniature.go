package experiment

import (
	"context"
	"math"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/hashmap"
)

const (
	// exactRows and exactBytes are the most rows and bytes of tables that a plan opens as they are. Of larger ones it opens a miniature of at most miniatureRows and
	// miniatureBytes, or, where that are few, of fewRows or longestBytes.
	exactRows      = 1 << 22
	exactBytes     = 64 << 20
	miniatureRows  = 1 << 18
	miniatureBytes = 32 << 20
	fewRows        = 1 << 15
	longestBytes   = 256 << 20
	// sampledRows of a table whose rows are not all read say what its rows are like.
	sampledRows = 1 << 14
)

// miniature makes tables small, and their lookups and caches with them: of every scale blocks of rows it keeps one, and the lookups of its rows (Waldspurger et al., Cache Modeling and
// Optimization using Miniature Simulations, USENIX ATC 2017). A cache of one part in scale of the memory then misses one part in scale of the lookups. Hits do not scale as well: the
// few rows that are looked up most may be kept or not. One block of scale neighbours is kept, so that each part of the table is there as often as any other.
type miniature struct {
	// scale is 1 for tables as they are.
	scale int64
	// block is how many rows that are neighbours stay so: 1, or those of a page.
	block int64
	seed  uint64
}

// miniatureOf returns the one for tables of so many rows and bytes together, of which up to most rows are opened as they are.
func miniatureOf(rows, bytes, block, most int64, seed uint64) miniature {
	m := miniature{1, block, seed}
	if rows > most || bytes > exactBytes {
		mean := float64(bytes) / float64(rows)
		keep := min(float64(min(most, miniatureRows)), max(miniatureBytes/mean, min(fewRows, longestBytes/mean)))
		m.scale = max(1, int64(math.Ceil(float64(rows)/keep)))
	}
	return m
}

// groups returns how many blocks of a table are kept. The rows behind the last group of blocks are left out.
func (m *miniature) groups(rows int64) int64 { return rows / (m.scale * m.block) }

// rows returns how many rows of a table are kept.
func (m *miniature) rows(rows int64) int64 { return m.groups(rows) * m.block }

func (m *miniature) kept(group int64) int64 {
	return int64(hashmap.Hash(uint64(group)^m.seed) % uint64(m.scale))
}

// row returns the number that a row of a table with so many rows has in the miniature.
func (m *miniature) row(row, rows int64) (int64, bool) {
	if m.scale == 1 {
		return row, true
	}
	block := row / m.block
	group := block / m.scale
	return group*m.block + row%m.block, group < m.groups(rows) && block%m.scale == m.kept(group)
}

// original returns the row that has a number in the miniature.
func (m *miniature) original(row int64) int64 {
	if m.scale == 1 {
		return row
	}
	group := row / m.block
	return (group*m.scale+m.kept(group))*m.block + row%m.block
}

// table returns a table in small. some has rows like the table's, if that has none in memory.
func (m *miniature) table(ctx context.Context, t, some *dataset.Table) (*dataset.Table, error) {
	small := &dataset.Table{Name: t.Name, DType: t.DType, Rows: int(m.rows(int64(t.Rows))), RowBytes: t.RowBytes}
	small.Data = make([]byte, small.Bytes())
	if t.Paged() != nil {
		numbers := make([]int64, small.Rows)
		for i := range numbers {
			numbers[i] = m.original(int64(i))
		}
		return small, t.ReadRows(ctx, numbers, small.Data)
	}
	for i := range int64(small.Rows) {
		if some != nil {
			copy(small.Row(i), some.Row(i*sampleStep%int64(some.Rows)))
		} else {
			copy(small.Row(i), t.Row(m.original(i)))
		}
	}
	t.Unload(0, len(t.Data)/t.RowBytes)
	return small, ctx.Err()
}

// sampleStep spreads the rows of a sample over a table: neighbours in the sample are not neighbours there.
const sampleStep = 0x9e3779b1

// shrunk is lookups of a miniature. Its batches are as large as those of the whole tables, as far as these suffice: codecs are chosen for batches of a size.
type shrunk struct {
	recorded
	whole []int64 // lookups of each batch before those of rows that are not kept were left out
}

// shrink returns batches [from, to) of a workload of the run's tables in small. together is how many batches become one.
func (m *miniature) shrink(ctx context.Context, r *run, w workload.Workload, from, to, together int) (*shrunk, error) {
	s := &shrunk{recorded: recorded{kind: w.Kind(), ends: []int{0}}}
	bases := make([]int64, len(r.all())+1)
	for i, t := range r.all() {
		bases[i+1] = bases[i] + m.rows(int64(t.Rows))
	}
	batches := make([][]uint32, len(r.all())) // rows of each table: a batch of several tables has those of a table together
	n, whole := 0, int64(0)
	flush := func() {
		for i, rows := range batches {
			s.recorded.rows = append(s.recorded.rows, rows...)
			batches[i] = rows[:0]
		}
		s.ends, s.whole = append(s.ends, len(s.recorded.rows)), append(s.whole, whole)
		n, whole = 0, 0
	}
	for _, rows := range learnFrom(ctx, w, from, to) {
		whole += int64(len(rows))
		for table, part := range r.parts(rows) {
			of := int64(r.all()[table].Rows)
			for _, row := range part {
				if small, ok := m.row(row, of); ok {
					batches[table] = append(batches[table], uint32(bases[table]+small))
				}
			}
		}
		if n++; n == together {
			flush()
		}
		r.progress.Step()
		if len(s.recorded.rows) > maxRecorded {
			return nil, errTooLong
		}
	}
	if n > 0 {
		flush()
	}
	return s, ctx.Err()
}
