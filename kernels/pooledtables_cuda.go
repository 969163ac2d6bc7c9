//go:build cuda && linux

package kernels

import (
	"errors"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

var poolJoinTables = cuda.NewFunction[abi.PooledTablesArgs](module("pooled"), "poolJoinTables")

// tablesLaunch is a launch for several tables.
type tablesLaunch struct {
	pooledLaunch // its shared memory is the most that a table of the launch needs
	f            *cuda.Function[abi.PooledTablesArgs]
	members      []int
	windows      *reduce.Batch // nil: none; else all members are windows of what this one is a window of, with as many bags each
	rows         int64         // at most, of all members together
	bags, parts  int           // the most bags of a member, and the most 32 columns
	stride       uint32        // of the sums of runs
	joins        bool          // bags may have several runs
	grid         int
}

// takes says whether a table can have a place in the launch.
func (l *tablesLaunch) takes(k *PooledTables, of *pooledLaunch, b *reduce.Batch) bool {
	switch {
	case l.name != of.name || l.form != of.form || l.function != of.function || l.threads != of.threads || len(l.members) == abi.PoolTables:
		return false
	case b.Whole.Size() == 0:
		return l.windows == nil && l.rows+int64(b.Rows) <= math.MaxInt32
	case l.windows == nil || l.windows.Whole.Addr() != b.Whole.Addr() || l.windows.Narrow != b.Narrow || l.windows.Bags != b.Bags || l.windows.Rows != b.Rows:
		return false
	}
	// If no position is in two windows, they have no more rows together than there are.
	return !slices.ContainsFunc(l.members, func(i int) bool {
		first, other := b.Offsets.Addr(), k.serve(i).Pool.Offsets.Addr()
		return max(first, other)-min(first, other) < uint64(int64(b.Bags)*b.OffsetBytes())
	})
}

// RunCUDA implements cuda.Kernel.
func (k *PooledTables) RunCUDA(s *cuda.Stream) error {
	k.args = slices.Grow(k.args[:0], k.len())[:k.len()]
	k.takeSlots()
	launches, err := k.launches(s)
	if err != nil {
		return err
	}
	blocks, slot := 0, 0
	for i := range launches {
		l := &launches[i]
		resident, err := l.f.Resident(s.Device(), l.threads, l.shared)
		if err != nil {
			return err
		}
		per := int64(minTileRows * l.threads / l.lanes)
		l.grid = max(1, min(resident, max(int((l.rows+per-1)/per), len(l.members))))
		blocks += l.grid
	}
	for _, r := range k.Replays {
		r.blocks = uint64(blocks)
	}
	launched := 0
	for i := range launches {
		l := &launches[i]
		began, err := k.launch(s, l, slot, blocks)
		if began {
			launched += l.grid
		}
		if err != nil { // a graph may have the launches before: its replays have only their blocks, and end with them
			for _, r := range k.Replays {
				r.blocks = uint64(launched)
			}
			return err
		}
		slot += len(l.members)
	}
	return nil
}

// launches sets the tables' arguments and divides them among launches.
func (k *PooledTables) launches(s *cuda.Stream) (all []tablesLaunch, err error) {
	for i := range k.len() {
		serve := k.serve(i)
		serve.Partials = k.Partials
		of, args, err := serve.pooled(s)
		if err != nil {
			return nil, err
		}
		b, t := serve.Pool, &k.args[i]
		*t = abi.PooledTable{Serve: args.Serve, Pool: args.Pool}
		if b.Float8.Is() {
			t.Float8 = float8Args(&b.Float8)
		}
		if k.Replays != nil {
			t.State, t.Views = k.Replays[i].State.Addr(), k.Replays[i].Views.Addr()
		} else {
			t.View = serve.replayView()
		}
		at := slices.IndexFunc(all, func(l tablesLaunch) bool { return l.takes(k, &of, b) })
		if at < 0 {
			at = len(all)
			all = append(all, tablesLaunch{pooledLaunch: of, f: codedKernels[of.name].pooledTables[of.form+of.function], members: make([]int, 0, k.len()-i)})
			if b.Whole.Size() > 0 {
				all[at].windows, all[at].rows = b, int64(b.Rows)
			}
		}
		l := &all[at]
		l.members = append(l.members, i)
		if l.windows == nil {
			l.rows += int64(b.Rows)
		}
		l.shared, l.stride = max(l.shared, of.shared), max(l.stride, args.Pool.PartialStride)
		l.bags, l.parts, l.joins = max(l.bags, b.Bags), max(l.parts, (b.Columns+31)/32), l.joins || b.PartialBytes() > 0
	}
	return all, nil
}

var errPooledArgs = errors.New("kernels: memory for arguments, counters and sums of several tables is too small")

// launch launches what adds up the rows of some tables, whose results have places from slot on. A replay has so many blocks. began says whether the tables' blocks
// are launched: after an error those that join sums of runs may be missing.
func (k *PooledTables) launch(s *cuda.Stream, l *tablesLaunch, slot, blocks int) (began bool, err error) {
	n := len(l.members)
	counters := int64(slot) * CountersBytes
	if k.Replays == nil {
		for j, i := range l.members {
			k.slots[i] = slot + j
		}
		if end := int64(slot+n) * CountersBytes; k.Counters.Size() < end || k.Results.Size() < end {
			return false, errPooledArgs
		}
		if n == 1 && l.windows == nil && codedKernels[l.name].pooled[l.form+l.function] != nil {
			return false, k.alone(s, l.members[0])
		}
	}
	args := abi.PooledTablesArgs{
		Counters: k.Counters.Addr() + uint64(counters), Results: k.Results.Addr() + uint64(counters), Batch: k.Batch, Count: uint32(n), Blocks: uint32(blocks), Tiles: uint32(l.grid * l.threads / l.lanes),
	}
	if l.inside {
		args.Inside = 1
	}
	if k.Replays != nil {
		args.State = k.Replays[0].State.Addr()
	}
	if w := l.windows; w != nil {
		args.Offsets, args.Bags, args.Limit = w.Whole.Addr(), uint32(w.Bags), uint32(w.Rows)
		if w.Narrow {
			args.Narrow = 1
		}
	}
	rows := 0
	for j, i := range l.members {
		t, b := &k.args[i], k.serve(i).Pool
		t.Pool.PartialStride = l.stride
		if k.Replays == nil {
			t.Serve.Lookup.Counters = args.Counters + uint64(j)*CountersBytes
		}
		if args.Starts[j] = uint32(rows); l.windows != nil {
			args.Starts[j] = uint32((b.Offsets.Addr() - b.Whole.Addr()) / uint64(b.OffsetBytes()))
		}
		rows += b.Rows
	}
	args.Starts[n] = uint32(rows)
	if n == 1 {
		args.One = k.args[l.members[0]]
	} else {
		from, to := int64(slot)*PooledTableBytes, int64(slot+n)*PooledTableBytes
		if k.Args.Size() < to {
			return false, errPooledArgs
		}
		args.Tables = k.Args.Addr() + uint64(from)
		all := view[abi.PooledTable](k.Args.Slice(from, to))
		for j, i := range l.members {
			all[j] = k.args[i]
		}
	}
	if err := l.f.Launch(s, l.grid, l.threads, l.shared, &args); err != nil || !l.joins {
		return err == nil, err
	}
	resident, err := poolJoinTables.Resident(s.Device(), blockThreads, 0)
	if err != nil {
		return true, err
	}
	per := max(1, min(resident/n, (l.bags*l.parts+blockThreads/32-1)/(blockThreads/32)))
	return true, poolJoinTables.Launch(s, n*per, blockThreads, 0, &args)
}

// alone launches the kernel of a table that is alone in its launch.
func (k *PooledTables) alone(s *cuda.Stream, i int) error {
	serve, at := k.Tables[i], int64(k.slots[i])*CountersBytes
	serve.Lookup.Counters, serve.Result, serve.Batch = k.Counters.Slice(at, at+CountersBytes), k.Results.Slice(at, at+CountersBytes), k.Batch
	return (*pooledServe)(serve).RunCUDA(s)
}
