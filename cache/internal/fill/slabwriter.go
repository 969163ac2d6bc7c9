package fill

import (
	"context"
	"errors"

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

// writeSlab writes the rows of the entries to their slots in a device's slab, which holds nothing else. The processors gather rows; where the
// host cannot address the slab, they do so into page-locked memory, from which the rows are copied.
func writeSlab(ctx context.Context, d *read.Device, tables []*read.Table, entries []hashmap.Entry) error {
	// gather copies rows to memory that begins at an offset of the slab. Every row was read before, when its length was.
	gather := func(mem []byte, at int64, entries []hashmap.Entry) {
		host.Workers(0).For(len(entries), writeGrain, func(from, to int) {
			if ctx.Err() != nil {
				return
			}
			for _, e := range entries[from:to] {
				table, row := hashmap.SplitKey(e.Key)
				stored, _, _ := tables[table].Tier.Stored(row)
				copy(mem[e.Location.Offset()-at:], stored)
			}
		})
	}
	if mem := d.Slab.Bytes(); mem != nil {
		gather(mem, 0, entries)
		return ctx.Err()
	}
	if len(entries) == 0 {
		return nil
	}
	s, err := d.Device.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	var stages [2]device.Buffer
	var copied [2]device.Event
	defer func() {
		for i := range stages {
			d.Device.Free(stages[i])
			if copied[i] != nil {
				copied[i].Close()
			}
		}
	}()
	for i := range stages {
		if stages[i], err = d.Device.AllocHost(slabStageBytes, "slab staging"); err != nil {
			return err
		}
		if copied[i], err = d.Device.NewEvent(); err != nil {
			return err
		}
	}
	end := func(e hashmap.Entry) int64 {
		table, _ := hashmap.SplitKey(e.Key)
		return e.Location.Offset() + int64(tables[table].SlotBytes(e.Location))
	}
	for turn := 0; len(entries) > 0 && err == nil; turn++ {
		// A part is the entries whose slots follow each other.
		at, n := entries[0].Location.Offset(), 1
		for n < len(entries) && entries[n].Location.Offset() == end(entries[n-1]) && end(entries[n])-at <= slabStageBytes {
			n++
		}
		stage := stages[turn%2]
		if turn >= 2 {
			if err = copied[turn%2].Synchronize(); err != nil {
				break
			}
		}
		gather(stage.Bytes(), at, entries[:n])
		if err = ctx.Err(); err != nil {
			break
		}
		size := end(entries[n-1]) - at
		err = errors.Join(s.Copy(d.Slab.Slice(at, at+size), stage.Slice(0, size)), s.Record(copied[turn%2]))
		entries = entries[n:]
	}
	return errors.Join(err, s.Synchronize())
}
