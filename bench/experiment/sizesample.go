package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/slab"
)

// sampleSizes takes what rows are stored in from some of them: those that are encoded, or those that are read from a table's pages. Each row that is looked up, nil for all,
// has the length of one of them.
func (r *run) sampleSizes(ctx context.Context, name string, of *looked) (*sizes, error) {
	if m := r.table.Paged(); m != nil {
		return r.pagedSizes(ctx, of)
	}
	r.progress.Stage("training ("+name+")", 0)
	c, err := trainAs(name, r.some, r.cfg.Seed)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	s := newSizes(r.table, &r.cfg, c)
	r.progress.Stage("encoding ("+name+")", (r.some.Rows+partRows-1)/partRows)
	lengths := make([]int, r.some.Rows)
	err = eachPart(ctx, r.cfg.Workers, r.some.Rows, func(from, to int) (err error) {
		var dst []byte
		if c != nil {
			dst = make([]byte, c.EncodeBound())
		}
		for row := from; row < to && err == nil; row++ {
			lengths[row], err = storedBytes(c, dst, r.some.Row(int64(row)))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	s.sampled(lengths, r.table.RowBytes, of)
	return s, nil
}

// pagedSizes takes them from the pages: of runs of neighbours at even distances, which share pages.
func (r *run) pagedSizes(ctx context.Context, of *looked) (*sizes, error) {
	const runs, neighbours = 64, 64
	m := r.table.Paged()
	r.progress.Stage("reading some of the rows", 0)
	var rows []int64
	for i := range int64(runs) {
		for k := range int64(neighbours) {
			if row := int64(float64(i)*float64(m.Rows)/runs) + k; row < m.Rows && (len(rows) == 0 || row > rows[len(rows)-1]) {
				rows = append(rows, row)
			}
		}
	}
	lengths, err := r.table.StoredBytes(ctx, rows)
	if err != nil {
		return nil, err
	}
	s := newSizes(r.table, &r.cfg, nil)
	if s.codec = m.Codec; s.codec != registry.None && s.indexBytes == 0 {
		s.fixed += int64(r.table.Rows+63) / 64 * 8 // of compressed rows
	}
	s.sampled(lengths, r.table.RowBytes, of)
	s.ratio = float64(m.Rows) * float64(m.RowBytes) / float64(max(1, m.StoredBytes))
	return s, nil
}

// sampled gives the rows lengths of those of a sample.
func (s *sizes) sampled(lengths []int, rowBytes int, of *looked) {
	n := s.rows
	if of != nil {
		n = of.n
	}
	s.looked, s.stored, s.slot, s.lengths = of, make([]uint32, n), make([]uint32, n), make([]int32, len(lengths))
	const odd = 0x9e3779b1 // neighbours in the sample are not neighbours in lengths
	for i, length := range lengths {
		s.lengths[(uint64(i)*odd+1)%uint64(len(lengths))] = int32(length)
		s.others.stored += float64(length) / float64(len(lengths))
		s.others.slot += float64(slab.SlotBytes(length)) / float64(len(lengths))
	}
	stored := int64(0)
	for i := range s.stored {
		length := s.lengths[uint64(i)*odd%uint64(len(lengths))]
		s.stored[i], s.slot[i] = uint32(length), uint32(slab.SlotBytes(int(length)))
		s.slots, stored = s.slots+int64(s.slot[i]), stored+int64(length)
	}
	s.others.rows = s.rows - n
	s.slots += int64(math.Round(float64(s.others.rows) * s.others.slot))
	s.ratio = float64(s.rows) * float64(rowBytes) / max(1, float64(stored)+float64(s.others.rows)*s.others.stored)
}
