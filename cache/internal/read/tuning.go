package read

import (
	"time"

	"github.com/tensorcache/tensorcache/device"
)

// Tuning says which way batches are served where several give the same output. Caches have DefaultTuning. Tests have other values, so that small tables take
// every way; no batch may be under way when one changes.
type Tuning struct {
	// Launches serves the batches of all tables but resident ones. 0: a batch's size and its expected misses decide.
	Launches Launches

	// RoundBytes is the least size of a round of absent rows of a GPU's batch, and CapturedRoundBytes that of a captured batch, unless mostRounds of them would
	// not hold all rows: each launch that has nothing to do makes each replay longer.
	RoundBytes, CapturedRoundBytes int64
	// OrderMisses has the misses of batches with absent rows read in the order of their addresses, also where the table is small.
	OrderMisses bool

	// WrittenBytes is the memory for rows of a pooled batch that are written before they are added up, unless leastPooledRows of them are longer. Measured on an
	// H200: a part costs a batch 16 µs more, and parts of 32 MiB gain nothing by the L2.
	WrittenBytes int
	// WriteAlways has the rows of all pooled batches of GPUs written before they are added up.
	WriteAlways bool

	// LookPause is the least time between two looks for replays by Faults that does not wait. A look takes a launch that is waited for, some 15 µs of an idle GPU.
	LookPause time.Duration
	// Enqueued, unless nil, gets the stream of a batch that has been enqueued, before the call that enqueued it returns.
	Enqueued func(device.Stream) error
}

// DefaultTuning returns what was measured to be fastest.
func DefaultTuning() *Tuning {
	return &Tuning{
		RoundBytes: 2 << 20, CapturedRoundBytes: 16 << 20, WrittenBytes: 128 << 20, LookPause: 20 * time.Millisecond,
	}
}

// afterEnqueue returns err, or the error of Tuning.Enqueued for a batch that has been enqueued on stream s.
func (d *Device) afterEnqueue(s device.Stream, err error) error {
	if late := d.set.Tuning.Enqueued; err == nil && late != nil {
		err = late(s)
	}
	return err
}
