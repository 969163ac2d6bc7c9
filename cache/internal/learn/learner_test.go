package learn

import (
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/read"
)

// TestRingRecords: small tables have small rings, and those of large ones hold three batches of a hundredth of the rows, as training loops look them
// up, while memory is bounded.
func TestRingRecords(t *testing.T) {
	for rows, want := range map[int64]int{1: 1 << 16, 1 << 16: 1 << 16, 1<<16 + 1: 1 << 17, 1 << 22: 1 << 17, 1<<22 + 32: 1 << 18, 1 << 25: 1 << 20, 1 << 40: 1 << 20} {
		if got := ringRecords(rows); got != want {
			t.Errorf("%d rows: %d records, want %d", rows, got, want)
		}
	}
	if got := ringRecords(1 << 25); got < 3<<25/100 {
		t.Errorf("%d records for 32 M rows", got)
	}
}

// TestPending_IsBounded: what comes while too many samples wait is dropped, and the policy gets the others in the order in which they came.
func TestPending_IsBounded(t *testing.T) {
	var p pending
	var empty []sampled
	for round := range 3 {
		p.begin(2, 10)
		kept := 0
		for i := range int64(50) {
			if p.add(int(i%2), i, i%5 == 0) {
				kept++
			}
		}
		p.end()
		got := p.swap(empty)
		if kept != pendingRings*10 || len(got) != 2 {
			t.Fatalf("round %d: %d samples kept of %d tables", round, kept, len(got))
		}
		n := 0
		for table, of := range got {
			all := slices.Concat(of.rows, of.hits)
			for i, row := range all {
				hit := i >= len(of.rows)
				if int(row%2) != table || (row%5 == 0) != hit || row >= pendingRings*10 {
					t.Errorf("round %d: row %d of table %d, hit: %v", round, row, table, hit)
				}
				if i > 0 && i != len(of.rows) && row <= all[i-1] {
					t.Errorf("round %d: row %d is out of order", round, row)
				}
				n++
			}
		}
		if n != kept {
			t.Errorf("round %d: %d samples, %d were kept", round, n, kept)
		}
		empty = got
	}
}

// TestDrainIfIdle_WaitsForReaders: statistics have the samples that another goroutine is reading, unless callbacks hear of them, which may ask for
// statistics themselves.
func TestDrainIfIdle_WaitsForReaders(t *testing.T) {
	for _, callbacks := range []bool{false, true} {
		o := Options{Set: new(read.Set)}
		if callbacks {
			o.OnKeys = func(int, []int64) {}
		}
		l := New(o)
		l.reading.Lock() // a reader
		done := make(chan struct{})
		go func() {
			l.DrainIfIdle()
			close(done)
		}()
		var returned bool
		if callbacks { // a hang, if it waits
			<-done
		}
		select {
		case <-done:
			returned = true
		case <-time.After(20 * time.Millisecond):
		}
		l.reading.Unlock()
		<-done
		if returned != callbacks {
			t.Errorf("callbacks %v: returned while samples are read: %v", callbacks, returned)
		}
	}
}
