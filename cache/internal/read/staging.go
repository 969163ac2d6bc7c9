package read

import (
	"context"
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/device"
)

const (
	// stagedBytes is the most output that is staged at once, unless a single row is longer.
	stagedBytes = 64 << 20
	// arrivalBytes is the piece in which output arrives in page-locked memory before it is copied to Go memory: large enough for
	// the link, and for the copying of one piece to hide behind the arrival of the next.
	arrivalBytes = 4 << 20
	// copyBytes is the least that one goroutine copies, and copyWorkers the most goroutines that copy.
	copyBytes   = 512 << 10
	copyWorkers = 8
)

// maxStagings is how many batches for Go memory a device serves at once. With two the link is busy while one copies.
const maxStagings = 4

// staging is the memory that a batch for Go memory passes through where the device cannot address Go memory. It grows with the
// batches.
type staging struct {
	rows     device.Buffer // page-locked
	out      device.Buffer // the device's
	received device.Buffer // page-locked
	arrived  []device.Event
}

// takeStaging waits for staging memory. The caller puts it back into d.stagings.
func (d *Device) takeStaging(ctx context.Context) (*staging, error) {
	select {
	case a := <-d.stagings:
		if a == nil {
			a = &staging{}
		}
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reserve makes the memory large enough for so many bytes of row numbers and of output.
func (a *staging) reserve(o *Device, rowNumbers, bytes int64) error {
	if rowNumbers <= a.rows.Size() && bytes <= a.out.Size() && bytes <= int64(len(a.arrived))*arrivalBytes {
		return nil
	}
	d := o.Device
	for _, g := range []struct {
		b     *device.Buffer
		bytes int64
		what  string
		alloc func(int64, string) (device.Buffer, error)
	}{
		{&a.rows, rowNumbers, "batch row numbers", o.allocNear},
		{&a.out, bytes, "batch output", d.Alloc},
		{&a.received, bytes, "batch output", o.allocNear},
	} {
		if g.bytes <= g.b.Size() {
			continue
		}
		o.staged.Add(-g.b.Size())
		d.Free(*g.b)
		*g.b = device.Buffer{}
		larger, err := g.alloc(g.bytes, g.what)
		if err != nil {
			return fmt.Errorf("cache: %w", err)
		}
		*g.b = larger
		o.staged.Add(g.bytes)
	}
	for int64(len(a.arrived))*arrivalBytes < bytes {
		e, err := d.NewEvent()
		if err != nil {
			return err
		}
		a.arrived = append(a.arrived, e)
	}
	return nil
}

func (a *staging) close(d device.Device) {
	for _, e := range a.arrived {
		e.Close()
	}
	for _, b := range []device.Buffer{a.rows, a.out, a.received} {
		d.Free(b)
	}
}

// runStaged gathers into Go memory for a device that cannot address it: row numbers and rows pass through page-locked
// memory, the rows in pieces, so that the arrival of one hides the copying of another.
func (l *lane) runStaged(a *staging, table int, rows RowNumbers, out []byte) error {
	size := int64(len(out))
	if err := a.reserve(l.owner, rows.Buffer.Size(), size); err != nil {
		return err
	}
	pieces := int((size + arrivalBytes - 1) / arrivalBytes)
	copy(a.rows.Bytes(), rows.Buffer.Bytes())
	piece := func(i int) (from, to int64) { return int64(i) * arrivalBytes, min(int64(i+1)*arrivalBytes, size) }
	err := l.enqueue(l.stream, table, RowNumbers{a.rows.Slice(0, rows.Buffer.Size()), rows.Int32}, a.out.Slice(0, size))
	for i := 0; i < pieces && err == nil; i++ {
		from, to := piece(i)
		if err = l.stream.Copy(a.received.Slice(from, to), a.out.Slice(from, to)); err == nil {
			err = l.stream.Record(a.arrived[i])
		}
	}
	for i := 0; i < pieces && err == nil; i++ {
		if err = a.arrived[i].Synchronize(); err == nil {
			from, to := piece(i)
			copyParallel(out[from:to], a.received.Slice(from, to))
		}
	}
	return l.finish(err)
}

func copyParallel(dst []byte, src device.Buffer) {
	if len(dst) <= copyBytes { // not worth a goroutine, and the WaitGroup would be allocated
		copy(dst, src.Bytes())
		return
	}
	var wg sync.WaitGroup
	part := max(copyBytes, (len(dst)+copyWorkers-1)/copyWorkers)
	for from := part; from < len(dst); from += part {
		wg.Go(func() { copy(dst[from:min(from+part, len(dst))], src.Bytes()[from:]) })
	}
	copy(dst[:min(part, len(dst))], src.Bytes())
	wg.Wait()
}
