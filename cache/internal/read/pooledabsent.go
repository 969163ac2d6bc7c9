package read

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// absentPoolBytes is the memory for the rows that gatherThenPool gathers at a time, unless one group of rows is
// longer.
const absentPoolBytes = 32 << 20

// bagGroup is a group of a bag: positions from to to-1 of the batch.
type bagGroup struct{ bag, group, from, to int }

// groupSums are the sums of a bag's groups, and the number of rows of each.
type groupSums struct {
	sums   [][]float32
	counts []int
}

// gatherThenPool is GatherPooled for a table that may have absent rows. It gathers rows to host memory, part by part,
// and adds them up there in the same order. After an error out is only partly written.
func gatherThenPool[R RowNumber](ctx context.Context, d *Device, table int, rows []R, b *reduce.Batch, out []byte, trace *Trace) error {
	v := reduce.NewView(b)
	rowBytes := d.set.Tables[table].Tier.RowBytes()
	long := make([]groupSums, b.Bags)
	var groups []bagGroup
	bagOut := func(bag int) []byte { return out[int64(bag)*b.Stride:][:b.OutBytes()] }
	for bag := range b.Bags {
		from, to := v.Start(bag), v.End(bag)
		if from == to {
			clear(bagOut(bag))
		}
		if n := (to - from + reduce.Group - 1) / reduce.Group; n > 1 {
			long[bag] = groupSums{make([][]float32, n), make([]int, n)}
		}
		for g := 0; from < to; from, g = from+reduce.Group, g+1 {
			groups = append(groups, bagGroup{bag, g, from, min(from+reduce.Group, to)})
		}
	}
	var mem []byte
	var wanted []R
	var at []int // by position of the part: where the row lies in mem, or -1 for padding
	for len(groups) > 0 {
		n := 0
		wanted, at = wanted[:0], at[:0]
		first := groups[0].from
		for n < len(groups) && (n == 0 || (len(wanted)+groups[n].to-groups[n].from)*rowBytes <= absentPoolBytes) {
			for i := groups[n].from; i < groups[n].to; i++ {
				if int64(rows[i]) == b.Padding {
					at = append(at, -1)
					continue
				}
				at = append(at, len(wanted)*rowBytes)
				wanted = append(wanted, rows[i])
			}
			n++
		}
		if need := len(wanted) * rowBytes; cap(mem) < need {
			mem = make([]byte, need)
		}
		mem = mem[:len(wanted)*rowBytes]
		if err := Gather(ctx, d, table, wanted, mem, 0, trace); err != nil {
			return err
		}
		trace = nil // it records the first part only
		var next atomic.Int64
		var workers sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), (n+15)/16) {
			workers.Go(func() {
				p := pooler{view: &v, at: at, first: first, mem: mem, rowBytes: rowBytes}
				p.sums.Reset(b)
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					p.add(groups[i])
					if of := &long[groups[i].bag]; of.counts == nil {
						p.sums.Finish(bagOut(groups[i].bag))
					} else if c := p.sums.Count; c > 0 {
						of.counts[groups[i].group], of.sums[groups[i].group] = c, append([]float32(nil), p.sums.Group()...)
					}
				}
			})
		}
		workers.Wait()
		groups = groups[n:]
	}
	var s reduce.Sums
	s.Reset(b)
	for bag, of := range long {
		if of.counts != nil {
			s.FinishGroups(bagOut(bag), len(of.counts), func(i int) ([]float32, int) { return of.sums[i], of.counts[i] })
		}
	}
	return nil
}

// pooler adds up groups of rows that lie in memory. It is not safe for concurrent use.
type pooler struct {
	view     *reduce.View
	sums     reduce.Sums
	at       []int // where the rows from position first on lie in mem
	first    int
	mem      []byte
	rowBytes int
	wide     []byte // one row of float8, converted to float32
}

// add adds up a group. p.sums holds the result until the next call.
func (p *pooler) add(g bagGroup) {
	p.sums.Begin(g.group == 0)
	for run := g.from; run < g.to; run += reduce.Run {
		for i := run; i < min(run+reduce.Run, g.to); i++ {
			at := p.at[i-p.first]
			if at < 0 {
				continue
			}
			row := p.mem[at:][:p.rowBytes]
			if p.view.Float8.Is() {
				if p.wide == nil {
					p.wide = make([]byte, 4*p.view.Columns)
				}
				p.view.Float8.Load(p.wide, row)
				row = p.wide
			}
			if w := p.view.Weights; len(w) > 0 {
				p.sums.AddWeighted(row, w[i])
			} else {
				p.sums.Add(row)
			}
		}
		p.sums.EndRun()
	}
}

// gatherThenPoolOnHost is gatherThenPool for Enqueue on the host backend. The batch has ended when it returns.
func (d *Device) gatherThenPoolOnHost(ctx context.Context, s device.Stream, table int, rows RowNumbers, b *reduce.Batch, out device.Buffer, w Watcher) (*Batch, error) {
	t, o := d.set.Tables[table], Outcome{pooled: true}
	if err := s.Synchronize(); err != nil {
		return nil, d.wrap(err, b.Rows, t)
	}
	numbers := make([]int64, b.Rows)
	for i := range numbers {
		row := rows.at(i)
		switch {
		case row == b.Padding:
			row = -1
		case uint64(row) >= uint64(t.Tier.Rows()):
			if o.outOfRange++; o.outOfRange == 1 {
				o.outOfRangeAt = i
			}
			row = -1
		}
		numbers[i] = row
	}
	left := *b
	left.Padding = -1
	err := gatherThenPool(ctx, d, table, numbers, &left, out.Bytes(), nil)
	if err == nil {
		err = o.verdict(t, int64(b.Rows))
	}
	return d.endedBatch(table, b.Rows, err, w), nil
}
