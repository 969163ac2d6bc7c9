package read

import (
	"time"

	"github.com/tensorcache/tensorcache/device"
)

// Tuning says how batches are served where several ways give the same output. Caches use DefaultTuning. Tests use
// other values, so that small tables are served in every way. REQUIRES: no batch runs while a value changes.
type Tuning struct {
	// Launches, if not 0, serves the batches of all tables except resident ones. If it is 0, a batch's size and its
	// expected misses decide.
	Launches Launches

	// RoundBytes is the least size of a round of absent rows of a GPU batch, and CapturedRoundBytes that of a captured
	// batch. Rounds are longer if maxRounds of them would not hold all rows. Shorter rounds would mean more launches,
	// which take time in each replay even if they have nothing to do.
	RoundBytes, CapturedRoundBytes int64
	// OrderMisses makes batches with absent rows read their misses in the order of their addresses, even if the table
	// is small.
	OrderMisses bool

	// WrittenBytes is the scratch memory for rows of a pooled batch that are written before they are added up. It is
	// at least minPooledRows rows. Measured on an H200: each further part costs a batch 16 µs, and parts of 32 MiB,
	// which fit the L2 cache, gain nothing.
	WrittenBytes int
	// WriteAlways makes all pooled GPU batches write their rows before they are added up.
	WriteAlways bool

	// LookPause is the least time between two looks at replays that Faults begins without waiting for them. A look is
	// a launch and a wait for it: about 15 µs on an idle GPU.
	LookPause time.Duration
	// Enqueued, if not nil, gets the stream of each batch that has been enqueued, before the call that enqueued it
	// returns.
	Enqueued func(device.Stream) error
}

// DefaultTuning returns the values that were measured to be fastest.
func DefaultTuning() *Tuning {
	return &Tuning{
		RoundBytes: 2 << 20, CapturedRoundBytes: 16 << 20, WrittenBytes: 128 << 20, LookPause: 20 * time.Millisecond,
	}
}

// afterEnqueue returns err if it is not nil. Otherwise it calls Tuning.Enqueued for the batch enqueued on stream s,
// and returns its error.
func (d *Device) afterEnqueue(s device.Stream, err error) error {
	if late := d.set.Tuning.Enqueued; err == nil && late != nil {
		err = late(s)
	}
	return err
}
