package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Found is one hit or one miss of a batch. Word is a hit's slab.Location, or a miss's row number. Position is the row's index in the batch.
// Reason is the slab.Reason of a miss.
type Found abi.Found

// FoundBytes is the size of a Found in bytes. A batch of n rows has a list of n.
const FoundBytes = abi.FoundBytes

// FoundView views a buffer as the hits and misses of a batch: hits from the front, misses from the back.
func FoundView(b device.Buffer) []Found { return view[Found](b) }

// Counters counts what happened to the rows of one batch. It lies in device memory, and must be zero before the batch. The
// kernels that end the batch copy it to the batch's result and leave it zero: see Ending.
//
//   - Hits and Misses count the rows of the batch. While Serve runs, Hits counts its blocks that have ended.
//   - Reasons counts the misses by slab.Reason.
//   - Corrupt counts the rows that did not decode; CorruptPosition is the batch index of one of them.
//   - OutOfRange counts the row numbers outside the table. NotFirst is the complement of the first one's batch index.
//   - Share is the number of the share that the batch's misses are, 0 for none: see ShareOpen. ShareFetch clears it.
//   - HostBytes is the sum of the stored bytes of the missed rows.
//   - Peers counts the hits in slabs of other devices.
//   - Batch, in a result, is the lower half of the number of the batch whose counters these are. Before, it counts those of
//     the batch's last kernels that have ended.
type Counters abi.Counters

// CountersBytes is the size of Counters in bytes.
const CountersBytes = abi.CountersBytes

// CountersView views a buffer as counters.
func CountersView(b device.Buffer) *Counters { return &view[Counters](b)[0] }

// FirstOutOfRange returns the batch index of the first row number out of range. REQUIRES: c.OutOfRange > 0.
func (c *Counters) FirstOutOfRange() int { return int(^c.NotFirst) }

// addPart adds what a part of a batch has counted.
func (c *Counters) addPart(done *Counters) {
	atomic.AddUint32(&c.Hits, done.Hits)
	atomic.AddUint32(&c.Misses, done.Misses)
	atomic.AddUint32(&c.Peers, done.Peers)
	atomic.AddUint64(&c.HostBytes, done.HostBytes)
	for r, n := range done.Reasons {
		atomic.AddUint32(&c.Reasons[r], n)
	}
}
