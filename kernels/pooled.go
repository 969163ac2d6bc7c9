package kernels

import (
	"sync"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Pooled returns the kernel that adds the rows up where they are decoded, as Pool says: Lookup.Out receives the sums of the batch's bags. A row number that
// is out of range or of a corrupt row is left out. If an offset is bad, it is counted as out of range, and the output is zeros on the host, and
// anything on a GPU.
func (k *Serve) Pooled() device.Kernel { return (*pooledServe)(k) }

// Pooled returns the kernel of a replay that does what the kernel of Serve.Pooled does. It takes windows, too.
func (k *Replay) Pooled() device.Kernel {
	return &PooledTables{Replays: []*Replay{k}, Partials: k.Serve.Partials}
}

type pooledServe Serve

// Name implements device.Kernel.
func (q *pooledServe) Name() string { return "pooled" }

// pooledHost is what the host execution of a pooled batch reads.
type pooledHost struct {
	view reduce.View
	// Of bags of more than one group: the groups' sums, and how many rows each has. The place of a group is groupPlace of its position.
	sums   []float32
	counts []int32
}

// pooledGrain is the number of positions whose groups a goroutine sums at a time.
const pooledGrain = 512

// groupPlace returns the place of a group of a bag that has several: no two have the same, because all but the last one of a bag are full.
func groupPlace(position int, last bool) int {
	place := position / reduce.Group * 2
	if last {
		place++
	}
	return place
}

// RunHost implements device.Kernel.
func (q *pooledServe) RunHost(w device.Workers) {
	k := (*Serve)(q)
	k.readHost()
	p := &pooledHost{view: reduce.NewView(k.Pool)}
	k.host.pooled = p
	v := &p.view
	if bad := v.BadOffset(); bad >= 0 {
		k.host.count.outOfRange(uint32(bad))
		k.clearBags()
		publish(k.host.count, k.Result, k.Batch)
		return
	}
	long := v.Longest() > reduce.Group
	if long {
		places := groupPlace(k.Pool.Rows, true) + 1
		p.sums, p.counts = make([]float32, places*k.Pool.Columns), make([]int32, places)
	}
	w.Range(max(v.Start(v.Bags), 1), pooledGrain, q)
	if long {
		k.joinGroups(w)
	}
	publish(k.host.count, k.Result, k.Batch)
	k.host.pooled = nil
}

// bagOut returns where a bag's output goes.
func (k *Serve) bagOut(bag int) []byte {
	return k.host.out[int64(bag)*k.Pool.Stride:][:k.Pool.OutBytes()]
}

func (k *Serve) clearBags() {
	for b := range k.Pool.Bags {
		clear(k.bagOut(b))
	}
}

// joinGroups writes the bags of more than one group.
func (k *Serve) joinGroups(w device.Workers) {
	p := k.host.pooled
	v := &p.view
	w.For(v.Bags, rowGrain, func(from, to int) {
		s := takePooling(k)
		defer poolings.Put(s)
		for b := from; b < to; b++ {
			start, rows := v.Start(b), v.End(b)-v.Start(b)
			if rows <= reduce.Group {
				continue
			}
			groups := (rows + reduce.Group - 1) / reduce.Group
			s.sums.FinishGroups(k.bagOut(b), groups, func(i int) ([]float32, int) {
				at := groupPlace(start+i*reduce.Group, i == groups-1)
				return p.sums[at*k.Pool.Columns:][:k.Pool.Columns], int(p.counts[at])
			})
		}
	})
}

// pooling is what one goroutine needs to sum groups.
type pooling struct {
	sums reduce.Sums
	row  []byte // a decoded row
	wide []byte // a row of float8 as float32
	done Counters
	// The rows looked up: those from position from on, n of them. Memory was asked for of the first asked.
	from, n   int
	asked     int
	keys      [serveAhead]uint64
	locations [serveAhead]slab.Location
	words     [serveAhead]buddy.Word // of a resident table
}

var poolings = sync.Pool{New: func() any { return new(pooling) }}

func takePooling(k *Serve) *pooling {
	s := poolings.Get().(*pooling)
	s.sums.Reset(k.Pool)
	if len(s.row) < k.Lookup.RowBytes {
		s.row = make([]byte, k.Lookup.RowBytes)
	}
	if n := 4 * k.Pool.Columns; k.Pool.Float8.Is() && len(s.wide) < n {
		s.wide = make([]byte, n)
	}
	s.done, s.n = Counters{}, 0
	return s
}

// Range implements device.Ranger: it sums the groups that begin at positions from to to-1, and at the end of the last part also empty bags there.
func (q *pooledServe) Range(from, to int) {
	k := (*Serve)(q)
	p := k.host.pooled
	v := &p.view
	end, last := v.Start(v.Bags), false
	if to >= end {
		last = true
	} else {
		_, end = v.FirstPiece(to, reduce.Group)
	}
	s := takePooling(k)
	defer poolings.Put(s)
	for bag, at := v.FirstPiece(from, reduce.Group); bag < v.Bags && (at < to || last); {
		start, bagEnd := v.Start(bag), v.End(bag)
		groupEnd := min(at+reduce.Group, bagEnd)
		s.sums.Begin(at == start)
		for run := at; run < groupEnd; run += reduce.Run {
			for i := run; i < min(run+reduce.Run, groupEnd); i++ {
				k.addRow(s, i, end)
			}
			s.sums.EndRun()
		}
		if bagEnd-start <= reduce.Group {
			s.sums.Finish(k.bagOut(bag))
		} else {
			place := groupPlace(at, groupEnd == bagEnd)
			if p.counts[place] = int32(s.sums.Count); s.sums.Count > 0 {
				copy(p.sums[place*k.Pool.Columns:], s.sums.Group())
			}
		}
		if at = groupEnd; at == bagEnd {
			bag++
			at = v.Start(bag)
		}
	}
	k.host.count.addPart(&s.done)
}

// addRow adds the row at position i to the sums. The positions up to end are this goroutine's.
func (k *Serve) addRow(s *pooling, i, end int) {
	if i >= s.from+s.n || s.n == 0 {
		k.lookAhead(s, i, end)
	}
	k.ask(s, i-s.from)
	row := k.host.rows.at(i)
	if row == k.Pool.Padding {
		return
	}
	if uint64(row) >= uint64(k.Lookup.Limit) {
		k.host.count.outOfRange(uint32(i))
		return
	}
	var mem []byte
	if k.Resident != nil {
		mem = k.residentAt(s, row, i)
	} else {
		mem = k.rowAt(s, row, i, s.locations[i-s.from])
	}
	if k.Pool.Float8.Is() && mem != nil {
		k.Pool.Float8.Load(s.wide, mem)
		mem = s.wide
	}
	switch weights := k.host.pooled.view.Weights; {
	case mem == nil:
	case len(weights) > 0:
		s.sums.AddWeighted(mem, weights[i])
	default:
		s.sums.Add(mem)
	}
}

// lookAhead looks up rows from position i on, so that the processor's cache misses overlap.
func (k *Serve) lookAhead(s *pooling, i, end int) {
	s.from, s.n, s.asked = i, min(serveAhead, end-i), 0
	if k.Resident != nil {
		k.lookAheadResident(func(j int) int64 { return k.host.rows.at(i + j) }, s.words[:s.n])
		s.asked = s.n
		return
	}
	for j := range s.n {
		s.keys[j] = hashmap.Key(k.Lookup.Table, k.host.rows.at(i+j))
	}
	k.host.table.FindAll(s.keys[:s.n], s.locations[:s.n])
	for j, l := range s.locations[:s.n] {
		row := k.host.rows.at(i + j)
		switch in := uint64(row) < uint64(k.Lookup.Limit) && row != k.Pool.Padding; {
		case !in:
			s.locations[j] = slab.NoLocation(slab.Cold) // no row is read
		case k.Lookup.Ring != nil:
			k.Lookup.sample(s.keys[j], uint32(i+j), !l.Valid())
		}
	}
	if k.host.ahead.packed { // index words, which ask reads
		k.host.ahead.rows(k, i, s.locations[:s.n])
	}
}

// askBytes is about how many bytes of rows are on their way to the processor while a row is added. If it is asked for more, it forgets some.
const askBytes = 4 << 10

// ask asks for the memory of some of the rows looked up, those behind the row at place j there, which is added next.
func (k *Serve) ask(s *pooling, j int) {
	most := max(2, askBytes/k.Lookup.RowBytes)
	if s.asked == s.n || s.asked > j+most/2 {
		return
	}
	for to := min(s.n, j+most); s.asked < to; s.asked++ {
		if l := s.locations[s.asked]; l.Valid() {
			reduce.Prefetch(k.host.slabs[l.Slab()][l.Offset():][:l.Stored(k.Lookup.RowBytes)])
			continue
		}
		row := k.host.rows.at(s.from + s.asked)
		if a := &k.host.ahead; a.mem == nil || uint64(row) >= uint64(k.Lookup.Limit) {
			continue
		} else if a.packed {
			a.row(k, row)
		} else {
			a.miss(row)
		}
	}
}

// rowAt returns the row of a number within the table, where it lies or decoded, and counts it. It returns nil for a corrupt row.
func (k *Serve) rowAt(s *pooling, row int64, i int, l slab.Location) []byte {
	rowBytes := k.Lookup.RowBytes
	if l = k.Lookup.reason(l, row); l.Valid() {
		s.done.Hits++
		s.done.Peers += k.Lookup.peer(l)
		if !l.Compressed() {
			return k.host.slabs[l.Slab()][l.Offset():][:rowBytes]
		}
		if !readSlot(k.Codec.Codec, k.Slabs, l, s.row[:rowBytes]) {
			k.host.count.corrupt(uint32(i))
			return nil
		}
		return s.row[:rowBytes]
	}
	s.done.Misses++
	s.done.Reasons[min(l.Reason(), slab.NumReasons-1)]++
	if stored, compressed := k.Tier.Stored(row); !compressed {
		s.done.HostBytes += uint64(rowBytes)
		return stored[:rowBytes]
	}
	n, ok := k.Tier.read(k.Codec.Codec, row, s.row[:rowBytes])
	if !ok {
		k.host.count.corrupt(uint32(i))
		return nil
	}
	s.done.HostBytes += uint64(n)
	return s.row[:rowBytes]
}

// residentAt is rowAt for a resident table.
func (k *Serve) residentAt(s *pooling, row int64, i int) []byte {
	mem := s.row[:k.Lookup.RowBytes]
	if !k.readResident(row, s.words[i-s.from], mem, &s.done) {
		k.host.count.corrupt(uint32(i))
		return nil
	}
	return mem
}
