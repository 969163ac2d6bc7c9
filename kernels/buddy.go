package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// Buddy reads rows of a resident table with Buddy slots and writes them to the output: one launch, without a hashmap.
//
// Row i is row i / D of device i % D, D being the number of devices. The first Target bytes of its stored form lie in its slot, at row × Target of
// the device's Slots, and the rest at row × Over of the device's Overflows: the buddy memory. Its word says stored length and whether it is
// compressed, as a slab.Location does. A word whose slab ID and offset are not both 0 says that a newer version lies there, in the overlay, in one piece.
//
// Counters receives in Hits the rows in range, in Peers those whose slot lies on another device than the reader's, in Reasons[0] those that were read
// in part from buddy memory, and in HostBytes the bytes read from it.
type Buddy struct {
	// Rows holds the batch's row numbers: int32 if Int32 is set, else int64. Limit is the table's number of rows.
	Rows     device.Buffer
	Int32    bool
	Limit    int64
	Counters device.Buffer
	// Words, Slots and Overflows are by device, 1 to 8. Words has 8 bytes a row. Slots and Overflows have slab.TailSlack bytes behind the last row. Overflows
	// is not used where Over is 0.
	Words, Slots, Overflows []device.Buffer
	// Target and Over are multiples of 16. Together they hold the longest stored form.
	Target, Over int
	// Slabs has the overlay, by slab ID.
	Slabs []device.Buffer
	// Device is the reader's number among the devices.
	Device int
	Codec  Codec
	// Out receives row i of the batch at i × RowBytes.
	Out      device.Buffer
	RowBytes int
	// End is how the batch ends, unless it is a part of a captured graph. Its Kernels is 1.
	End Ending

	blocks uint64 // of a replay; 0 before the launch
}

// Name implements device.Kernel.
func (k *Buddy) Name() string { return "buddy" }

// rowNumbers returns the row numbers of the batch.
func (k *Buddy) rowNumbers() rowNumbers { return (&Lookup{Rows: k.Rows, Int32: k.Int32}).rowNumbers() }

// RunHost implements device.Kernel.
func (k *Buddy) RunHost(w device.Workers) {
	rows, count, out := k.rowNumbers(), CountersView(k.Counters), k.Out.Bytes()
	words := make([][]uint64, len(k.Words))
	for d, b := range k.Words {
		words[d] = view[uint64](b)
	}
	devices := int64(len(words))
	w.For(rows.len(), rowGrain, func(from, to int) {
		var done Counters
		stored := make([]byte, 0, k.Target+k.Over)
		for i := from; i < to; i++ {
			row, to := rows.at(i), out[i*k.RowBytes:][:k.RowBytes]
			if uint64(row) >= uint64(k.Limit) {
				clear(to)
				count.outOfRange(uint32(i))
				continue
			}
			done.Hits++
			d, local := int(row%devices), row/devices
			if d != k.Device {
				done.Peers++
			}
			l := slab.Location(atomic.LoadUint64(&words[d][local]))
			n := l.Stored(k.RowBytes)
			if l.Compressed() && (n < 1 || n >= k.RowBytes) { // no encoder keeps a row compressed that does not shrink
				count.corrupt(uint32(i))
				continue
			}
			var bytes []byte
			switch {
			case l.Slab() != 0 || l.Offset() != 0:
				bytes = k.Slabs[l.Slab()].Bytes()[l.Offset():][:n]
			case n <= k.Target:
				bytes = k.Slots[d].Bytes()[local*int64(k.Target):][:n]
			default:
				stored = append(stored[:0], k.Slots[d].Bytes()[local*int64(k.Target):][:k.Target]...)
				stored = append(stored, k.Overflows[d].Bytes()[local*int64(k.Over):][:n-k.Target]...)
				bytes = stored
				done.Reasons[0]++
				done.HostBytes += uint64(n - k.Target)
			}
			if got, ok := restore(k.Codec.Codec, to, bytes, l.Compressed()); !ok || got != n {
				count.corrupt(uint32(i))
			}
		}
		atomic.AddUint32(&count.Hits, done.Hits)
		atomic.AddUint32(&count.Peers, done.Peers)
		atomic.AddUint32(&count.Reasons[0], done.Reasons[0])
		atomic.AddUint64(&count.HostBytes, done.HostBytes)
	})
	k.End.runHost(count)
}
