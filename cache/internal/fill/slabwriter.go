package fill

import (
	"context"
	"errors"
	"sync"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
)

const (
	// slabStageBytes is the page-locked memory of a stage. While one is copied to the device, rows are gathered into the other.
	slabStageBytes = 32 << 20
	// writeGrain is the number of rows that a goroutine gathers at a time.
	writeGrain = 256
)

// slabWriter writes rows to their slots in a device's slab while nobody reads that. The processors gather rows; where the host cannot address the
// slab, they do so into page-locked memory, from which the rows are copied. It is safe for concurrent use.
type slabWriter struct {
	d      *read.Device
	tables []*read.Table
	direct []byte // the slab's memory, nil where the host cannot address it

	mu     sync.Mutex // guards the rest
	stream device.Stream
	stages [2]device.Buffer
	copied [2]device.Event
	turn   int
}

// newSlabWriter returns the writer of a device's slab, which is to be closed also after an error.
func newSlabWriter(d *read.Device, tables []*read.Table) (w *slabWriter, err error) {
	w = &slabWriter{d: d, tables: tables, direct: d.Slab.Bytes()}
	if w.direct != nil {
		return w, nil
	}
	if w.stream, err = d.Device.NewStream(); err != nil {
		return w, err
	}
	for i := range w.stages {
		if w.stages[i], err = d.Device.AllocHost(slabStageBytes, "slab staging"); err != nil {
			return w, err
		}
		if w.copied[i], err = d.Device.NewEvent(); err != nil {
			return w, err
		}
	}
	return w, nil
}

// synchronize waits until all rows are in the slab.
func (w *slabWriter) synchronize() error {
	if w.stream == nil {
		return nil
	}
	return w.stream.Synchronize()
}

func (w *slabWriter) close() {
	w.synchronize() // the stages are read
	if w.stream != nil {
		w.stream.Close()
	}
	for i := range w.stages {
		w.d.Device.Free(w.stages[i])
		if w.copied[i] != nil {
			w.copied[i].Close()
		}
	}
}

// write writes the rows of entries. stored returns the stored form of the row of an entry, which may be followed by other bytes and need not be kept
// once write has returned.
func (w *slabWriter) write(ctx context.Context, entries []hashmap.Entry, stored func(i int) []byte) error {
	length := func(e hashmap.Entry) int64 {
		table, _ := hashmap.SplitKey(e.Key)
		return int64(e.Location.Stored(w.tables[table].Tier.RowBytes()))
	}
	// gather copies rows to memory that begins at an offset of the slab.
	gather := func(mem []byte, at int64, first, last int) {
		host.Workers(0).For(last-first, writeGrain, func(from, to int) {
			if ctx.Err() != nil {
				return
			}
			for i := first + from; i < first+to; i++ {
				copy(mem[entries[i].Location.Offset()-at:], stored(i)[:length(entries[i])])
			}
		})
	}
	if w.direct != nil {
		gather(w.direct, 0, 0, len(entries))
		return ctx.Err()
	}
	end := func(e hashmap.Entry) int64 {
		table, _ := hashmap.SplitKey(e.Key)
		return e.Location.Offset() + int64(w.tables[table].SlotBytes(e.Location))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := 0; first < len(entries); w.turn++ {
		// A part is the entries whose slots follow each other.
		at, last := entries[first].Location.Offset(), first+1
		for last < len(entries) && entries[last].Location.Offset() == end(entries[last-1]) && end(entries[last])-at <= slabStageBytes {
			last++
		}
		stage, copied := w.stages[w.turn%2], w.copied[w.turn%2]
		if w.turn >= 2 {
			if err := copied.Synchronize(); err != nil {
				return err
			}
		}
		gather(stage.Bytes(), at, first, last)
		if err := ctx.Err(); err != nil {
			return err
		}
		size := end(entries[last-1]) - at
		if err := errors.Join(w.stream.Copy(w.d.Slab.Slice(at, at+size), stage.Slice(0, size)), w.stream.Record(copied)); err != nil {
			return err
		}
		first = last
	}
	return nil
}
