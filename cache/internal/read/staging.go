package read

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
)

const (
	// stagedBytes is the most bytes of output that pass through staging at once, unless one row is longer.
	stagedBytes = 64 << 20
	// Output is copied to page-locked memory in pieces of arrivalBytes. That is long enough for the full rate of the
	// link. It is short enough for copying one piece to Go memory while the next one arrives.
	arrivalBytes = 4 << 20
	// copyBytes is the least that one goroutine copies to Go memory. copyWorkers is the most goroutines that copy at
	// once.
	copyBytes   = 512 << 10
	copyWorkers = 8
)

// maxStagings is how many batches for Go memory a device serves at once. With two or more, the link is busy while one
// of them copies.
const maxStagings = 4

// staging is the memory through which a batch for Go memory passes if the device cannot address Go memory. It grows
// as needed.
type staging struct {
	rows     device.Buffer  // page-locked
	out      device.Buffer  // device memory
	received device.Buffer  // page-locked
	arrived  []device.Event // one for each piece of output, recorded when the piece is in received
}

// takeStaging returns staging memory, and waits for it if necessary. The caller puts it back into d.stagings.
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

// reserve makes the memory large enough for the given bytes of row numbers and of output.
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
		taken *atomic.Int64
	}{
		{&a.rows, rowNumbers, "batch row numbers", o.allocNear, &o.staged},
		{&a.out, bytes, "batch output", d.Alloc, &o.outBytes},
		{&a.received, bytes, "batch output", o.allocNear, &o.staged},
	} {
		if g.bytes <= g.b.Size() {
			continue
		}
		g.taken.Add(-g.b.Size())
		d.Free(*g.b)
		*g.b = device.Buffer{}
		larger, err := g.alloc(g.bytes, g.what)
		if err != nil {
			return fmt.Errorf("cache: %w", err)
		}
		*g.b = larger
		g.taken.Add(g.bytes)
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

// runStaged gathers into Go memory for a device that cannot address it. Row numbers and rows pass through page-locked
// memory. The rows arrive in pieces: one piece is copied to Go memory while the next one arrives.
func (l *lane) runStaged(a *staging, table int, rows RowNumbers, out output) error {
	size := rows.Len() * int64(out.row)
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
			out.putParallel(int(from), a.received.Slice(from, to).Bytes())
		}
	}
	return l.finish(err)
}

// putParallel is put with several goroutines.
func (o output) putParallel(at int, src []byte) {
	if len(src) <= copyBytes { // too short for a goroutine; also avoids allocating the WaitGroup
		o.put(at, src)
		return
	}
	var wg sync.WaitGroup
	part := max(copyBytes, (len(src)+copyWorkers-1)/copyWorkers)
	for from := part; from < len(src); from += part {
		wg.Go(func() { o.put(at+from, src[from:min(from+part, len(src))]) })
	}
	o.put(at, src[:min(part, len(src))])
	wg.Wait()
}
