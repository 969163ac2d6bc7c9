package read

import (
	"time"

	"github.com/tensorcache/tensorcache/device"
)

// enqueuedLate is nil but in tests.
var enqueuedLate func(device.Stream) error

// SetLaunches has every batch served by the given launches, 0 for the usual ones. Tests try all of them on small tables. No batch may be
// under way.
func SetLaunches(l Launches) { onlyLaunches = l }

// SetRounds has absent rows of GPUs' batches pass in rounds of so many bytes, at most 16 of them, and misses be read in order, until undo is called. No
// batch may be under way.
func SetRounds(bytes int64) (undo func()) {
	was, wasReplayed := leastRound, leastReplayed
	leastRound, leastReplayed, orderAll = bytes, bytes, true
	return func() { leastRound, leastReplayed, orderAll = was, wasReplayed, false }
}

// SetGathered has GPUs' pooled batches of tables of pages gather so many bytes of rows in a round, until undo is called. No batch may be under way.
func SetGathered(bytes int64) (undo func()) {
	was := mostGatheredBytes
	mostGatheredBytes = bytes
	return func() { mostGatheredBytes = was }
}

// SetEnqueuedLate has the calls of the driver that enqueue a batch return when f does, which gets the batch's stream; nil undoes it. No batch may be under
// way.
func SetEnqueuedLate(f func(device.Stream) error) { enqueuedLate = f }

// SetPauseLooks has Faults that does not wait look for replays once in such a time, until undo is called. No cache with captured batches may be open.
func SetPauseLooks(t time.Duration) (undo func()) {
	was := pauseLooks
	pauseLooks = t
	return func() { pauseLooks = was }
}

// AwaitLooks returns when no look for replays is under way that Faults has asked for. No call of Faults may be.
func (d *Device) AwaitLooks() { d.captures.looks.Wait() }

// HoldEpoch begins a batch that enqueues nothing, and ends when the returned function is called. Tests use it to hold epochs back.
func (d *Device) HoldEpoch() (end func()) {
	l := d.idleLane()
	if l == nil {
		d.mu.Lock()
		d.mu.opened++
		d.mu.Unlock()
		var err error
		if l, err = d.openLane(); err != nil {
			panic(err)
		}
	}
	l.running.Store(true)
	l.words.Begun.Add(1)
	return func() { d.release(l, nil) }
}

// SetPooledWritten has pooled batches of GPUs write their rows before they add them up, so many bytes at a time, until undo is called. No batch may be under
// way.
func SetPooledWritten(bytes int) (undo func()) {
	was := pooledRowsBytes
	pooledRowsBytes, alwaysWritten = bytes, true
	return func() { pooledRowsBytes, alwaysWritten = was, false }
}
