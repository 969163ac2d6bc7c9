package read

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/board"
)

// Readers are the other processes that read the memory of a set.
type Readers interface {
	// Wait waits until each process reads by the views that are set now, and until all its batches that had begun by
	// then have ended.
	Wait(ctx context.Context) error
	// Mapped waits until each process reads by the views that are set now.
	Mapped(ctx context.Context) error
	// Held returns an error that names a process which has delayed Wait or Mapped for too long, or nil.
	Held() error
	// TableTotals and DeviceTotals return what their batches have counted. Processes that have ended are included.
	TableTotals(table int) board.Totals
	DeviceTotals(device int) board.Totals
	// Lengthened tells them the new length of a table.
	Lengthened(table int, rows int64)
}

// Readers returns the processes that read the set's memory, or nil if it is not shared.
func (s *Set) Readers() Readers {
	if r := s.readers.Load(); r != nil {
		return *r
	}
	return nil
}

// SetReaders allows other processes to read. It is called once.
func (s *Set) SetReaders(r Readers) { s.readers.Store(&r) }

// Generation changes after each change of a device's view or of its view of a table. Before it changes, all batches
// that begin read the new view.
func (s *Set) Generation() uint64 { return s.generation.Load() }

// Renew makes other processes load the views again. The devices' views are the same, but what the views of replays
// contain in addition has changed, such as the length of a table.
func (s *Set) Renew() { s.generation.Add(1) }

// remote returns totals of other processes, or zeros if there are none.
func (s *Set) remote(of func(Readers) board.Totals) (t board.Totals) {
	if r := s.Readers(); r != nil {
		t = of(r)
	}
	return t
}
