package change

import (
	"fmt"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// mirror writes changes to one device while batches run there. It has a stream of its own, and page-locked memory for the data. Writer.mu
// guards it.
type mirror struct {
	owner  *read.Device
	hasMap bool // the device's map is a copy of the index, not the index itself
	stream device.Stream
	// Page-locked memory: rows to be written, their destinations, and words to be stored. It is allocated with the first change.
	stage, items, words                device.Buffer
	rows                               [][]byte      // of items, not in stage yet
	target                             device.Buffer // that items are for
	stageUsed, itemsUsed, wordsUsed    int64
	stageBytes, itemsBytes, wordsBytes int64
}

func newMirror(d *read.Device, tables []*read.Table, hasMap bool) (*mirror, error) {
	m := &mirror{owner: d, hasMap: hasMap}
	var longest, rows, bytes int64 // of a slot, and of all tables
	for _, t := range tables {
		slot := int64(slab.SlotBytes(t.Tier.RowBytes()))
		longest, rows, bytes = max(longest, slot), rows+t.Tier.Capacity(), bytes+t.Tier.Capacity()*slot
	}
	m.stageBytes = max(longest, min(4<<20, bytes))
	m.itemsBytes = min(8192, rows) * abi.ScatterItemBytes
	m.wordsBytes = min(1<<16, 4*rows) * wordBytes
	var err error
	m.stream, err = d.Device.NewStream()
	return m, err
}

func (m *mirror) close() {
	m.stream.Close()
	for _, b := range []device.Buffer{m.stage, m.items, m.words} {
		m.owner.Device.Free(b)
	}
}

// open allocates the page-locked memory, unless it is allocated.
func (m *mirror) open() error {
	for _, b := range []struct {
		buffer *device.Buffer
		bytes  int64
	}{{&m.stage, m.stageBytes}, {&m.items, m.itemsBytes}, {&m.words, m.wordsBytes}} {
		if b.buffer.Size() != 0 {
			continue
		}
		var err error
		if *b.buffer, err = m.owner.Device.AllocHost(b.bytes, "changes"); err != nil {
			return err
		}
	}
	return nil
}

// store enqueues stores of words, at distinct indices, to target. finish waits for them.
func (m *mirror) store(target device.Buffer, words []word) error {
	for len(words) > 0 {
		if err := m.open(); err != nil {
			return err
		}
		if m.wordsUsed == m.words.Size() {
			if err := m.finish(); err != nil {
				return err
			}
		}
		n := min(int64(len(words))*wordBytes, m.words.Size()-m.wordsUsed)
		part := m.words.Slice(m.wordsUsed, m.wordsUsed+n)
		copy(part.Bytes(), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n))
		if err := m.stream.Launch(&kernels.Store{Target: target, Words: part}); err != nil {
			return err
		}
		m.wordsUsed += n
		words = words[n/wordBytes:]
	}
	return nil
}

// put has finish write a row to its slot in the slab. No batch may read the slot, and the row must not change until finish returns.
func (m *mirror) put(offset int64, stored []byte) error {
	return m.putIn(m.owner.Slab, offset, stored)
}

// putRow is put for the memory that is the mirror's target.
func (m *mirror) putRow(offset int64, stored []byte) error {
	if err := m.open(); err != nil {
		return err
	}
	n := int64(slab.SlotBytes(len(stored)))
	if m.stageUsed+n > m.stage.Size() || m.itemsUsed == m.items.Size() {
		if err := m.finish(); err != nil {
			return err
		}
	}
	m.rows = append(m.rows, stored)
	kernels.ScatterItemsView(m.items)[m.itemsUsed/abi.ScatterItemBytes] = kernels.ScatterItem{
		To: uint64(offset), From: uint32(m.stageUsed), Bytes: uint32(len(stored)),
	}
	m.stageUsed += n
	m.itemsUsed += abi.ScatterItemBytes
	return nil
}

// finishRows is finish if there are rows for another target.
func (m *mirror) finishRows() error {
	if m.itemsUsed == 0 {
		return nil
	}
	return m.finish()
}

// finish writes the rows of put, and waits for them and for the stores.
func (m *mirror) finish() error {
	if m.itemsUsed > 0 {
		m.copyRows()
		if err := m.stream.Launch(&kernels.Scatter{Slab: m.target, Stage: m.stage, Items: m.items.Slice(0, m.itemsUsed)}); err != nil {
			return err
		}
	}
	if m.itemsUsed == 0 && m.wordsUsed == 0 {
		return nil
	}
	m.itemsUsed, m.stageUsed, m.wordsUsed = 0, 0, 0
	if err := m.stream.Synchronize(); err != nil {
		return fmt.Errorf("device %d: %w", m.owner.Index, err)
	}
	return nil
}

// copyRows copies the rows of put to stage. They lie all over the host tier, so most of this is waiting for memory, and all processors do it.
func (m *mirror) copyRows() {
	items, stage := kernels.ScatterItemsView(m.items), m.stage.Bytes()
	host.Workers(0).For(len(m.rows), 128, func(from, to int) {
		for i := from; i < to; i++ {
			copy(stage[items[i].From:], m.rows[i])
		}
	})
	clear(m.rows)
	m.rows = m.rows[:0]
}
