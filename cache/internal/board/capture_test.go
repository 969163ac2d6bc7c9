package board

import "testing"

// TestCapture_Whole: whoever reads a place sees each replay as a whole, of the batch that has the place then, whatever the writers do meanwhile.
func TestCapture_Whole(t *testing.T) {
	b, _ := newBoard(t, Shape{Lanes: 1, Captures: 3, Tables: 2})
	c, stop := b.Capture(2), make(chan struct{})
	const batches, replays = 2000, 100
	go func() { // table 0 counts by 1, table 1 by 2
		defer close(stop)
		for batch := range batches {
			table := batch % 2
			c.Clear()
			from := c.Begin(table)
			if from != uint64(batch*replays) {
				t.Errorf("batch %d begins at %d", batch, from)
			}
			for n := int64(1); n <= replays; n++ {
				number := from + uint64(n)
				c.Begun.Store(number)
				for i := range 9 {
					c.copies[number&1][i].Store(n * int64(table+1))
				}
				c.Ended.Store(number)
			}
		}
	}()
	reads := 0
	for done := false; !done; reads++ {
		select {
		case <-stop:
			done = true
		default:
		}
		table, got, ok := c.Load()
		if !ok {
			continue
		}
		n := got.Gathers
		if n%int64(table+1) != 0 || n > replays*int64(table+1) || got.Hits != n || got.PeerHits != n || got.HostBytes != n || got.Misses() != 5*n {
			t.Fatalf("table %d, %+v", table, got)
		}
	}
	if _, got, _ := c.Load(); got.Gathers != 2*replays || c.Ended.Load() != batches*replays {
		t.Errorf("%+v, %d replays", got, c.Ended.Load())
	}
}

// TestCapture_Places: places, lanes and records do not overlap, and those that are used are counted by device, within bounds.
func TestCapture_Places(t *testing.T) {
	s := Shape{Lanes: 4, Captures: 6, Tables: 2}
	b, memory := newBoard(t, s)
	for i := range s.Lanes {
		b.Lane(i).Begun.Store(1)
		b.Record(i, 1).Add(&Totals{Gathers: 1})
	}
	for i := range s.Captures {
		c := b.Capture(i)
		if table, got, ok := c.Load(); c.Running() != 0 || table != 0 || got != (Totals{}) || !ok {
			t.Fatalf("place %d: %d, %+v", i, table, got)
		}
		c.Begun.Store(7)
	}
	for i := range s.Lanes {
		if got, ok := b.Record(i, 1).Load(); !ok || got.Gathers != 1 || b.Lane(i).Begun.Load() != 1 {
			t.Errorf("lane %d: %+v", i, got)
		}
	}
	for d, places := range []int{0, 3, 1 << 40} {
		b.Use(d, places)
		b.Use(d, places-1)
		if got := b.Used(d, 3); got != min(places, 3) {
			t.Errorf("device %d uses %d places of %d", d, got, places)
		}
	}
	if _, err := Open(memory, Shape{Lanes: 4, Captures: 5, Tables: 2}); err == nil {
		t.Error("a board of another shape was opened")
	}
	if again, err := Open(memory, s); err != nil || again.Capture(5).Begun.Load() != 7 {
		t.Error(err)
	}
}
