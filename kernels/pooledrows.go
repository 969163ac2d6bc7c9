package kernels

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// SumRows adds up rows that other kernels have written to memory, uncompressed and back to back: what Serve.Pooled does for rows that it decodes itself. A
// batch may be added up in several launches, in the order of its positions; each adds the runs that begin at positions from From to Next-1, of which
// the last may end up to 31 positions further. In captured graphs the Replay
// counts, also bad offsets.
type SumRows struct {
	Pool *reduce.Batch
	// Rows are the row numbers of the whole batch. Those outside the table of Limit rows are left out. On GPUs Views, unless empty, has the limit: see Replay.
	Rows  device.Buffer
	Int32 bool
	Limit int64
	Views device.Buffer
	// Mem has the rows of positions Base to End-1, RowBytes each, and SumRowsSlack bytes behind them.
	Mem       device.Buffer
	RowBytes  int
	Base, End int
	// From is 0 in the first launch, and Next is the number of rows in the last one.
	From, Next int
	Out        device.Buffer
	// Partials is memory of Pool.PartialBytes, the same in all launches of a batch.
	Partials device.Buffer
	// Round, unless empty, is the result of what wrote the rows from position Added on: Counters that are added to those at Counters. The first launch adds bad
	// offsets. The last one publishes them.
	Round, Counters device.Buffer
	Added           int
	Ending          Ending
}

// SumRowsSlack is the bytes behind rows that SumRows may read.
const SumRowsSlack = 32

// Name implements device.Kernel.
func (k *SumRows) Name() string { return "sum-rows" }

func (k *SumRows) last() bool { return k.Next >= k.Pool.Rows }

// RunHost implements device.Kernel.
func (k *SumRows) RunHost(w device.Workers) {
	v := reduce.NewView(k.Pool)
	if bad := v.BadOffset(); bad >= 0 {
		if k.From == 0 && k.Counters.Size() != 0 {
			CountersView(k.Counters).outOfRange(uint32(bad))
		}
		clear(k.Out.Bytes())
	} else {
		w.For(v.Bags, 1, func(from, to int) {
			s := poolings.Get().(*pooling)
			defer poolings.Put(s)
			for b := from; b < to; b++ {
				k.addBag(s, &v, b)
			}
		})
	}
	if k.Counters.Size() == 0 {
		return
	}
	c, round := CountersView(k.Counters), CountersView(k.Round)
	c.addPart(round)
	if round.Corrupt != 0 {
		c.Corrupt, c.CorruptPosition = c.Corrupt+round.Corrupt, round.CorruptPosition+uint32(k.Added)
	}
	if round.OutOfRange != 0 {
		c.OutOfRange += round.OutOfRange
		c.NotFirst = max(c.NotFirst, round.NotFirst-uint32(k.Added))
	}
	if k.last() {
		publish(c, k.Ending.Result, k.Ending.Batch)
	}
}

// addBag adds what this launch has of a bag.
func (k *SumRows) addBag(s *pooling, v *reduce.View, bag int) {
	start, end := v.Start(bag), v.End(bag)
	out := k.Out.Bytes()[int64(bag)*k.Pool.Stride:][:k.Pool.OutBytes()]
	if start == end && k.last() {
		clear(out)
	}
	numbers := rowNumbersOf(k.Rows, k.Int32)
	s.sums.Reset(k.Pool)
	if n := 4 * k.Pool.Columns; k.Pool.Float8.Is() && len(s.wide) < n {
		s.wide = make([]byte, n)
	}
	first := max(start, start+(k.From-start+reduce.Run-1)/reduce.Run*reduce.Run)
	for run := first; run < min(end, k.Next); run += reduce.Run {
		s.sums.Begin(run == start)
		for i := run; i < min(run+reduce.Run, end); i++ {
			row := numbers.at(i)
			if uint64(row) >= uint64(k.Limit) || row == k.Pool.Padding {
				continue
			}
			mem := k.Mem.Bytes()[(i-k.Base)*k.RowBytes:][:k.RowBytes]
			if k.Pool.Float8.Is() {
				k.Pool.Float8.Load(s.wide, mem)
				mem = s.wide
			}
			if len(v.Weights) > 0 {
				s.sums.AddWeighted(mem, v.Weights[i])
			} else {
				s.sums.Add(mem)
			}
		}
		s.sums.EndRun()
		if end-start <= reduce.Run {
			s.sums.Finish(out)
			continue
		}
		count, sums := k.partial(run, run+reduce.Run >= end)
		if *count = uint32(s.sums.Count); *count > 0 {
			copy(sums, s.sums.Group())
		}
	}
	if k.last() && end-start > reduce.Run {
		runs := (end - start + reduce.Run - 1) / reduce.Run
		s.sums.FinishRuns(out, runs, func(i int) ([]float32, int) {
			count, sums := k.partial(start+i*reduce.Run, i == runs-1)
			return sums, int(*count)
		})
	}
}

// partial returns the place of a run's sums: how many rows it has, and the sums.
func (k *SumRows) partial(run int, last bool) (*uint32, []float32) {
	place := run / reduce.Run * 2
	if last {
		place++
	}
	mem := k.Partials.Bytes()[int64(place)*k.Pool.PartialStride():][:k.Pool.PartialStride()]
	return (*uint32)(unsafe.Pointer(&mem[0])), view[float32](device.HostBuffer(mem[reduce.PartialHeader:]))[:k.Pool.Columns]
}

// Counts returns the kernel that adds up nothing but what a part of a batch of so many rows has counted: for rows that are used by other means. Of k, Base, End, Mem, RowBytes, Round,
// Counters, Added and Ending are used. b is memory for what says that no bag is summed.
func (k *SumRows) Counts(b *reduce.Batch, rows int) device.Kernel {
	*b = reduce.Batch{Mode: reduce.Sum, Row: dtype.Float32, Out: dtype.Float32, Rows: rows, Size: 1, Padding: reduce.NoPadding}
	k.Pool, k.From, k.Next = b, k.End, k.End
	return k
}
