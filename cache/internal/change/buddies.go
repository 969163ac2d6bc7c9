package change

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// newRange returns a range like that of a span, with overflow places for the span's rows in host memory, or on peers if the table wants them
// there and the budget has room for them beside those that the rows have now.
func (w *Writer) newRange(t *read.Table, s read.Span) (*kernels.Range, error) {
	r, places := t.Resident, read.BuddyPlaces{Nodes: w.store.Nodes.Tier}
	bytes := r.RangeBytes(s.Target, s.To-s.From)
	if t.WantResident.Buddy == read.BuddyHost || r.Rows.Devices == 1 || bytes == 0 {
		return r.NewRange(w.set, places, s.Target, s.From, s.To, s.SlotOf(s.From))
	}
	w.cycle.Lock() // while it changes the budget's division
	defer w.cycle.Unlock()
	room := w.buddyRoom()
	most, ok := slices.Max(room), false
	if places.Peers, ok = buddy.Peers(bytes, room); !ok && t.WantResident.Buddy == read.BuddyPeer {
		return nil, fmt.Errorf("%w: table %s: overflow places on peers need %d B for those of each of the %d devices, until the rows have moved beside the old ones: at most %d B of a budget are left",
			place.ErrBudget, t.Name, bytes, len(room), max(0, most))
	}
	n, err := r.NewRange(w.set, places, s.Target, s.From, s.To, s.SlotOf(s.From))
	w.countBuddies()
	return n, err
}

// buddyRoom returns what is left of the budget of each device. REQUIRES: the cycle's lock is held.
func (w *Writer) buddyRoom() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.store.Space.Load()
	room := make([]int64, len(s.Budgets))
	for i, b := range s.Budgets {
		if w.set.Devices[i].IsLost() {
			continue
		}
		room[i] = s.PayloadOf(i, min(b, w.budget.Load())) - w.store.Slabs[i].Limit
	}
	return room
}

// countBuddies notes in the budget's division what overflow places take on each device. REQUIRES: the cycle's lock is held.
func (w *Writer) countBuddies() {
	s := *w.store.Space.Load()
	s.Buddy = make([]int64, len(s.Budgets))
	for _, t := range w.set.Tables {
		t.Resident.AddPeerBytes(s.Buddy)
	}
	w.store.Space.Store(&s)
}

// dropRange frees the buddy memory of a range where no batch reads.
func (w *Writer) dropRange(r *read.Resident, of *kernels.Range) {
	if of.Peers == nil {
		r.Drop(of)
		return
	}
	w.cycle.Lock()
	defer w.cycle.Unlock()
	r.Drop(of)
	w.countBuddies()
}
