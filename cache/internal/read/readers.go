package read

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/board"
)

// Readers are other processes that read the memory of a set.
type Readers interface {
	// Wait waits until each of them reads by the views that are set now, and every batch of theirs that had begun by then has ended.
	Wait(ctx context.Context) error
	// Mapped waits until each of them reads by the views that are set now.
	Mapped(ctx context.Context) error
	// Held returns an error that names a process which has held back Wait or Mapped for too long, nil if there is none.
	Held() error
	// TableTotals and DeviceTotals are what their batches have counted, those of processes that have ended included.
	TableTotals(table int) board.Totals
	DeviceTotals(device int) board.Totals
	// Lengthened lets them know the new length of a table.
	Lengthened(table int, rows int64)
}

// Readers returns the processes that read the set's memory, nil if it is not shared.
func (s *Set) Readers() Readers {
	if r := s.readers.Load(); r != nil {
		return *r
	}
	return nil
}

// SetReaders lets other processes in. It is called once.
func (s *Set) SetReaders(r Readers) { s.readers.Store(&r) }

// Generation changes whenever a device is given another view, of its hashmap and slabs or of a table: before it changes, all batches that begin
// read the view that is set.
func (s *Set) Generation() uint64 { return s.generation.Load() }

// Renew has other processes read by the views anew, which are the same but for what views of replays have beside.
func (s *Set) Renew() { s.generation.Add(1) }

// elsewhere returns totals of other processes, if there are any.
func (s *Set) remote(of func(Readers) board.Totals) (t board.Totals) {
	if r := s.Readers(); r != nil {
		t = of(r)
	}
	return t
}
