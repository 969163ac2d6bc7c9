package cold

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Flight is rows that are being read, to be put in the host tier.
type Flight struct {
	Rows       []int64
	Prefetched bool
	// The version counter of each row before it was read, and its stored form, nil if it could not be read. They are set when done is closed.
	Versions   []uint32
	Stored     [][]byte
	Compressed []bool

	done  chan struct{}
	taken []atomic.Bool // by a batch, before the host tier had it; of a prefetch
	mu    sync.Mutex
	mem   []byte
	size  int64 // bytes that its rows take
}

// Unread says whether no batch has asked for a row yet.
func (f *Flight) Unread(i int) bool { return f.Prefetched && !f.taken[i].Load() }

// newFlight begins a flight of rows, which are about to be read.
func (t *Table) newFlight(rows []int64) *Flight {
	f := &Flight{Rows: rows, Versions: make([]uint32, len(rows)), Stored: make([][]byte, len(rows)), Compressed: make([]bool, len(rows)), done: make(chan struct{})}
	for i, row := range rows {
		f.Versions[i] = t.Version(row)
	}
	return f
}

// put keeps a copy of a row. Different rows may be put at the same time.
func (f *Flight) put(i int, stored []byte, compressed bool) {
	f.mu.Lock()
	if cap(f.mem)-len(f.mem) < len(stored) {
		f.mem = make([]byte, 0, max(len(stored), min(1<<20, len(f.Rows)*len(stored))))
		f.size += int64(cap(f.mem))
	}
	at := len(f.mem)
	f.mem = f.mem[:at+len(stored)]
	to := f.mem[at : at+len(stored) : at+len(stored)]
	f.mu.Unlock()
	copy(to, stored)
	f.Stored[i], f.Compressed[i] = to, compressed
}

// complete hands a flight that has been read to the writer, which puts rows in the host tier, unless that is behind: the flights that wait may take as many bytes
// as Options.Waiting says, but the first of them may be longer.
func (t *Table) complete(f *Flight) {
	if waiting := t.waiting.Add(f.size); waiting <= max(t.o.Waiting, f.size) {
		select {
		case t.completed <- f:
			return
		default:
		}
	}
	t.waiting.Add(-f.size)
	for i := range f.Rows {
		if !f.Prefetched || f.Unread(i) { // not dropped: rows that a batch has taken
			t.Counts.Dropped.Add(1)
		}
	}
	t.flights.remove(f)
}

// Completed are the flights that have been read. Release must be called for each.
func (t *Table) Completed() <-chan *Flight { return t.completed }

// Release ends a flight: its rows are in the host tier, or are not to be.
func (t *Table) Release(f *Flight) {
	t.waiting.Add(-f.size)
	t.flights.remove(f)
}

// flights finds the flight of a row that is being prefetched.
type flights struct {
	mu   sync.Mutex
	rows map[int64]flightRow
}

type flightRow struct {
	of *Flight
	i  int
}

// begin registers rows that are not in flight yet, as far as there is room, and returns their flight, or nil if there are none.
func (s *flights) begin(t *Table, rows []int64) *Flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []int64
	for i, row := range rows {
		if int64(len(s.rows)) >= t.o.Ahead {
			t.Counts.Prefetched.Add(int64(len(rows) - i))
			t.Counts.Dropped.Add(int64(len(rows) - i))
			break
		}
		if _, flying := s.rows[row]; !flying {
			s.rows[row] = flightRow{}
			fresh = append(fresh, row)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	f := t.newFlight(fresh)
	f.Prefetched, f.taken = true, make([]atomic.Bool, len(fresh))
	for i, row := range fresh {
		s.rows[row] = flightRow{f, i}
	}
	return f
}

func (s *flights) remove(f *Flight) {
	if !f.Prefetched {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, row := range f.Rows {
		if s.rows[row] == (flightRow{f, i}) {
			delete(s.rows, row)
		}
	}
}

// take waits for the rows that are in flight, and calls put with each. It returns the other rows and their indices.
func (s *flights) take(ctx context.Context, t *Table, rows []int64, put func(i int, stored []byte, compressed bool, err error)) (rest []int64, at []int) {
	type flying struct {
		flightRow
		at int
	}
	var waiting []flying
	s.mu.Lock()
	if len(s.rows) == 0 {
		s.mu.Unlock()
		at = make([]int, len(rows))
		for i := range at {
			at[i] = i
		}
		return append([]int64(nil), rows...), at
	}
	for i, row := range rows {
		if f, ok := s.rows[row]; ok {
			waiting = append(waiting, flying{f, i})
		} else {
			rest, at = append(rest, row), append(at, i)
		}
	}
	s.mu.Unlock()
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	for _, w := range waiting {
		select {
		case <-w.of.done:
		case <-ctx.Done():
			put(w.at, nil, false, fmt.Errorf("table %s: row %d is being prefetched: %w", t.o.Name, rows[w.at], context.Cause(ctx)))
			continue
		}
		if stored := w.of.Stored[w.i]; stored != nil && t.Version(rows[w.at]) == w.of.Versions[w.i] {
			t.Counts.FromFlight.Add(1)
			if w.of.taken[w.i].Store(true); t.o.Taken != nil {
				t.o.Taken(rows[w.at])
			}
			put(w.at, stored, w.of.Compressed[w.i], nil)
		} else { // it has a newer version, or could not be read then
			rest, at = append(rest, rows[w.at]), append(at, w.at)
		}
	}
	return rest, at
}

// Prefetch begins to read those of rows that are not being read already, and returns. Rows that cannot be read are left to the batches that
// need them.
func (t *Table) Prefetch(rows []int64, start func(func())) {
	f := t.flights.begin(t, rows)
	if f == nil {
		return
	}
	t.Counts.Prefetched.Add(int64(len(f.Rows)))
	start(func() {
		t.Read(t.life, f.Rows, func(i int, stored []byte, compressed bool, err error) {
			if err == nil {
				f.put(i, stored, compressed)
			}
		})
		close(f.done)
		t.complete(f)
	})
}
