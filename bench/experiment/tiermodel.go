package experiment

import (
	"context"
	"fmt"
	"iter"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// tierModel places a table's rows as a cache of pages does, for one plan.
type tierModel struct {
	s        *sizes
	c        *curve
	slab     int64 // entries of the curve that lie in slabs
	rowBytes int
	pages    pageLayout
}

// Parts of a host tier (docs/tiers.md, Memory): the ring has one part in so many of what the index leaves, and gives up one of so many segments at a time.
const ringShare = 8

// tierModel returns the model of the table with no row in slabs.
func (p *planner) tierModel(ctx context.Context, s *sizes, c *curve) (*tierModel, error) {
	of, err := p.pageLayout(ctx, s)
	return &tierModel{s: s, c: c, rowBytes: p.base.table.RowBytes, pages: of}, err
}

// index is the host memory that the tier's index and that of the pages take.
func (m *tierModel) index() int64 {
	return m.least() - 3*int64(slab.SlotBytes(m.rowBytes))
}

// least is the least host memory with which a cache opens.
func (m *tierModel) least() int64 {
	least := transfer.LeastPart(m.s.rows, m.rowBytes) + pages.IndexMemory(m.s.rows, m.rowBytes, m.pages.count)
	if m.pages.ordered {
		least += 4 * m.s.rows
	}
	return least
}

// within runs the batches with so much host memory. The first half of them fills the ring, the figures are of the second half, or of all if there is one batch.
func (m *tierModel) within(ctx context.Context, memory int64, batches iter.Seq2[int, []int64]) (PlannedTiers, error) {
	p := PlannedTiers{HostMemory: memory, PagesBytes: int64(float64(m.pages.count) * m.pages.bytes), IndexBytes: 8 * m.s.rows}
	if memory < m.least() {
		return p, fmt.Errorf("--host-memory (%d B) must be at least %d B: the indexes of %d rows, and three rows", memory, m.least(), m.s.rows)
	}
	rest := memory - m.index()
	const inSlab, host = 1, 2
	where := make([]uint8, len(m.s.slot))
	main := rest - rest/ringShare
	first, last := int64(0), int64(0) // bytes and rows in slabs
	if m.slab > 0 {
		first, last = m.c.bytes[m.slab-1], m.c.rows[m.slab-1]
	}
	p.SlabRows, p.SlabBytes = last, first
	used := int64(0)
	for i, row := range m.c.order {
		if int64(i) < m.slab {
			where[row] = inSlab
			continue
		}
		if used = m.c.bytes[i] - first; used > main {
			break
		}
		where[row] = host
		p.HostRows, p.HostBytes = m.c.rows[i]-last, used
	}
	if used < main && m.s.others.slot > 0 { // rows that no batch looks up
		more := min(m.s.rows-last-p.HostRows, int64(float64(main-used)/m.s.others.slot))
		p.HostRows, p.HostBytes = p.HostRows+more, p.HostBytes+int64(float64(more)*m.s.others.slot)
	}
	ring := newRing(len(m.s.slot), max(1, rest/ringShare/ringShare))
	seen := make([]int, m.pages.distinct) // the batch that has read a page, from 1
	all := 0
	for range batches {
		all++
	}
	batch, counted, lookups := 0, 0, int64(0)
	var hits, cold, read, pagesRead, slabBytes, hostBytes int64
	for _, rows := range batches {
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		batch++
		count := batch > all/2
		if count {
			counted++
			lookups += int64(len(rows))
		}
		fresh := map[int64]bool{}
		for _, row := range rows {
			switch {
			case where[row] == inSlab:
				if count {
					hits++
					slabBytes += int64(m.s.slot[row])
				}
				continue
			case where[row] == host || ring.in[row]:
				if count {
					hostBytes += int64(m.s.slot[row])
				}
				continue
			}
			if count {
				cold++
			}
			if fresh[row] {
				continue
			}
			fresh[row] = true
			page := m.pages.of[row]
			if count {
				read++
				if seen[page] != batch {
					pagesRead++
				}
			}
			seen[page] = batch
		}
		for _, row := range rows { // in the batch's order
			if fresh[row] {
				delete(fresh, row)
				ring.add(row, int64(m.s.slot[row]))
			}
		}
	}
	per := func(n int64) float64 { return float64(n) / float64(max(1, counted)) }
	p.SlabRatio, p.ColdRatio = ratio(hits, lookups), ratio(cold, lookups)
	p.HostRatio = ratio(lookups-hits-cold, lookups)
	p.SlabBytesRead, p.HostBytesRead = per(slabBytes), per(hostBytes)
	p.RowsRead, p.PagesRead, p.BytesRead = per(read), per(pagesRead), per(pagesRead)*m.pages.bytes
	return p, nil
}

// ring has the rows that batches have read lately, in segments, the oldest first.
type ring struct {
	in       []bool // rows
	segments [][]int64
	segment  int64 // bytes of one
	last     int64 // bytes in the newest
}

func newRing(rows int, segment int64) *ring { return &ring{in: make([]bool, rows), segment: segment} }

// add adds a row, and drops the oldest segment if there is no room.
func (r *ring) add(row, bytes int64) {
	if len(r.segments) == 0 || r.last+bytes > r.segment {
		if len(r.segments) == ringShare {
			for _, old := range r.segments[0] {
				r.in[old] = false
			}
			r.segments = r.segments[1:]
		}
		r.segments, r.last = append(r.segments, nil), 0
	}
	r.last += bytes
	newest := &r.segments[len(r.segments)-1]
	*newest = append(*newest, row)
	r.in[row] = true
}
