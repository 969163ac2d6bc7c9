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

// deviceWriter writes changes to one device while batches run there. It has a stream of its own, and page-locked memory for the data. Writer.mu
// guards it.
type deviceWriter struct {
	owner  *read.Device
	hasMap bool // the device's map is a copy of the index, not the index itself
	stream device.Stream
	// Page-locked memory: rows to be written, their destinations, and words to be stored. It is allocated with the first change.
	stage, items, words                device.Buffer
	rows                               [][]byte // of put, not in stage yet; items describe these rows, or what scatter copies
	stageUsed, itemsUsed, wordsUsed    int64
	stageBytes, itemsBytes, wordsBytes int64
}

func newDeviceWriter(d *read.Device, tables []*read.Table, hasMap bool) (*deviceWriter, error) {
	m := &deviceWriter{owner: d, hasMap: hasMap}
	var longest, rows, bytes int64 // of a slot, and of all tables
	for _, t := range tables {
		slot := int64(slab.SlotBytes(t.Tier.RowBytes()))
		longest, rows, bytes = max(longest, slot), rows+t.Tier.Capacity(), bytes+t.Tier.Capacity()*slot
	}
	m.stageBytes = max(longest, min(4<<20, bytes))
	m.itemsBytes = min(1<<16, 2*rows) * abi.ScatterItemBytes
	m.wordsBytes = min(1<<16, 4*rows) * wordBytes
	var err error
	m.stream, err = d.Device.NewStream()
	return m, err
}

func (m *deviceWriter) close() {
	m.stream.Close()
	for _, b := range []device.Buffer{m.stage, m.items, m.words} {
		m.owner.Device.Free(b)
	}
}

// open allocates the page-locked memory, unless it is allocated.
func (m *deviceWriter) open() error {
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
func (m *deviceWriter) store(target device.Buffer, words []word) error {
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

// put adds a row, which finish writes to its slot in the slab. No batch may read the slot, and the row must not change until finish returns.
func (m *deviceWriter) put(offset int64, stored []byte) error {
	n := int64(slab.SlotBytes(len(stored)))
	if len(m.rows) == 0 || m.stageUsed+n > m.stage.Size() {
		if err := m.finish(); err != nil { // items of scatter, too
			return err
		}
	}
	item, err := m.room(1)
	if err != nil {
		return err
	}
	m.rows = append(m.rows, stored)
	kernels.ScatterItemsView(item)[0] = kernels.ScatterItem{To: uint64(offset), From: uint32(m.stageUsed), Bytes: uint32(len(stored))}
	m.stageUsed += n
	return nil
}

// scatter enqueues copies of parts of stage, page-locked memory, to places in target that no batch reads. finish waits for them.
func (m *deviceWriter) scatter(target, stage device.Buffer, items []kernels.ScatterItem) error {
	if len(m.rows) > 0 {
		if err := m.finish(); err != nil {
			return err
		}
	}
	for len(items) > 0 {
		part, err := m.room(len(items))
		if err != nil {
			return err
		}
		items = items[copy(kernels.ScatterItemsView(part), items):]
		if err := m.stream.Launch(&kernels.Scatter{Slab: target, Stage: stage, Items: part}); err != nil {
			return err
		}
	}
	return nil
}

// room returns page-locked memory for 1 to n items.
func (m *deviceWriter) room(n int) (items device.Buffer, err error) {
	if err := m.open(); err != nil {
		return items, err
	}
	if m.itemsUsed == m.items.Size() {
		if err := m.finish(); err != nil {
			return items, err
		}
	}
	from := m.itemsUsed
	m.itemsUsed = min(m.items.Size(), from+int64(n)*abi.ScatterItemBytes)
	return m.items.Slice(from, m.itemsUsed), nil
}

// finish writes the rows of put, and waits for all that has been enqueued.
func (m *deviceWriter) finish() error {
	if m.itemsUsed == 0 && m.wordsUsed == 0 {
		return nil
	}
	if len(m.rows) > 0 {
		items := m.items.Slice(0, m.itemsUsed)
		m.copyRows()
		if err := m.stream.Launch(&kernels.Scatter{Slab: m.owner.Slab, Stage: m.stage, Items: items}); err != nil {
			return err
		}
	}
	m.itemsUsed, m.stageUsed, m.wordsUsed = 0, 0, 0
	if err := m.stream.Synchronize(); err != nil {
		return fmt.Errorf("device %d: %w", m.owner.Index, err)
	}
	return nil
}

// copyRows copies the rows of put to stage. They lie all over the host tier, so most of this is waiting for memory, and all processors do it.
func (m *deviceWriter) copyRows() {
	items, stage := kernels.ScatterItemsView(m.items), m.stage.Bytes()
	host.Workers(0).For(len(m.rows), 128, func(from, to int) {
		for i := from; i < to; i++ {
			copy(stage[items[i].From:], m.rows[i])
		}
	})
	clear(m.rows)
	m.rows = m.rows[:0]
}
