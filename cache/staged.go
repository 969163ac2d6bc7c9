package cache

import (
	"sync"

	"github.com/tensorcache/tensorcache/device"
)

const (
	// stagedBytes is the output of Go memory that is staged at once, unless a single row is longer.
	stagedBytes = 64 << 20
	// arrivalBytes is how much of it arrives before it is copied on: enough for the link, and for the copying of one
	// piece to hide behind the arrival of the next.
	arrivalBytes = 4 << 20
	// copyBytes is what one goroutine copies, and copyWorkers how many do.
	copyBytes   = 512 << 10
	copyWorkers = 8
)

// runStaged gathers into Go memory for a device that cannot address it: row numbers and rows pass through page-locked
// memory, the rows in pieces, so that the arrival of one hides the copying of another.
func (l *lane) runStaged(table int, rows []int64, out []byte) error {
	if err := l.reserve(len(rows)); err != nil {
		return err
	}
	d := l.owner.device
	size := int64(len(out))
	if err := l.grow(&l.rows, int64(len(rows))*8, "batch row numbers", d.AllocHost); err != nil {
		return err
	}
	if err := l.grow(&l.out, size, "batch output", d.Alloc); err != nil {
		return err
	}
	if err := l.grow(&l.received, size, "batch output", d.AllocHost); err != nil {
		return err
	}
	pieces := int((size + arrivalBytes - 1) / arrivalBytes)
	for len(l.arrived) < pieces {
		e, err := d.NewEvent()
		if err != nil {
			return err
		}
		l.arrived = append(l.arrived, e)
	}
	copy(l.rows.Bytes(), AsBytes(rows))
	piece := func(i int) (from, to int64) { return int64(i) * arrivalBytes, min(int64(i+1)*arrivalBytes, size) }
	err := l.enqueue(l.stream, table, l.rows.Slice(0, int64(len(rows))*8), l.out.Slice(0, size))
	for i := 0; i < pieces && err == nil; i++ {
		from, to := piece(i)
		if err = l.stream.Copy(l.received.Slice(from, to), l.out.Slice(from, to)); err == nil {
			err = l.stream.Record(l.arrived[i])
		}
	}
	for i := 0; i < pieces && err == nil; i++ {
		if err = l.arrived[i].Synchronize(); err == nil {
			from, to := piece(i)
			copyParallel(out[from:to], l.received.Slice(from, to))
		}
	}
	return l.finish(err)
}

func copyParallel(dst []byte, src device.Buffer) {
	var wg sync.WaitGroup
	part := max(copyBytes, (len(dst)+copyWorkers-1)/copyWorkers)
	for from := part; from < len(dst); from += part {
		wg.Go(func() { copy(dst[from:min(from+part, len(dst))], src.Bytes()[from:]) })
	}
	copy(dst[:min(part, len(dst))], src.Bytes())
	wg.Wait()
}
