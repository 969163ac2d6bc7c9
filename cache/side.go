package cache

import (
	"fmt"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// side writes to one device beside its batches, on a stream of its own, from page-locked memory. It is used under the lock
// of changes.
type side struct {
	owner  *deviceState
	hasMap bool // the device's map is a copy of the index, not the index itself
	stream device.Stream
	// Page-locked: rows on their way, where they go, and words. They are allocated with the first change.
	stage, items, words                device.Buffer
	stageUsed, itemsUsed, wordsUsed    int64
	stageBytes, itemsBytes, wordsBytes int64
}

func newSide(d *deviceState, hasMap bool) (*side, error) {
	s := &side{owner: d, hasMap: hasMap, stageBytes: 4 << 20, itemsBytes: 8192 * abi.ScatterItemBytes, wordsBytes: 1 << 20}
	for _, t := range d.cache.tables {
		s.stageBytes = max(s.stageBytes, int64(slab.SlotBytes(t.tier.RowBytes())))
	}
	var err error
	s.stream, err = d.device.NewStream()
	return s, err
}

func (s *side) close() {
	s.stream.Close()
	for _, b := range []device.Buffer{s.stage, s.items, s.words} {
		s.owner.device.Free(b)
	}
}

// open allocates what is not yet.
func (s *side) open() error {
	for _, b := range []struct {
		buffer *device.Buffer
		bytes  int64
	}{{&s.stage, s.stageBytes}, {&s.items, s.itemsBytes}, {&s.words, s.wordsBytes}} {
		if b.buffer.Size() != 0 {
			continue
		}
		var err error
		if *b.buffer, err = s.owner.device.AllocHost(b.bytes, "changes"); err != nil {
			return err
		}
	}
	return nil
}

// store enqueues stores of words, of distinct indices, to target. finish waits for them.
func (s *side) store(target device.Buffer, words []word) error {
	for len(words) > 0 {
		if err := s.open(); err != nil {
			return err
		}
		if s.wordsUsed == s.words.Size() {
			if err := s.finish(); err != nil {
				return err
			}
		}
		n := min(int64(len(words))*16, s.words.Size()-s.wordsUsed)
		part := s.words.Slice(s.wordsUsed, s.wordsUsed+n)
		copy(part.Bytes(), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n))
		if err := s.stream.Launch(&kernels.Store{Target: target, Words: part}); err != nil {
			return err
		}
		s.wordsUsed += n
		words = words[n/16:]
	}
	return nil
}

// put has a row written to its slot, which no batch reads. finish waits for it.
func (s *side) put(offset int64, stored []byte) error {
	if err := s.open(); err != nil {
		return err
	}
	n := int64(slab.SlotBytes(len(stored)))
	if s.stageUsed+n > s.stage.Size() || s.itemsUsed == s.items.Size() {
		if err := s.finish(); err != nil {
			return err
		}
	}
	copy(s.stage.Bytes()[s.stageUsed:], stored)
	kernels.ScatterItemsView(s.items)[s.itemsUsed/abi.ScatterItemBytes] = kernels.ScatterItem{
		To: uint64(offset), From: uint32(s.stageUsed), Bytes: uint32(len(stored)),
	}
	s.stageUsed += n
	s.itemsUsed += abi.ScatterItemBytes
	return nil
}

// finish waits for everything that was put and stored.
func (s *side) finish() error {
	if s.itemsUsed > 0 {
		if err := s.stream.Launch(&kernels.Scatter{Slab: s.owner.slab, Stage: s.stage, Items: s.items.Slice(0, s.itemsUsed)}); err != nil {
			return err
		}
	}
	if s.itemsUsed == 0 && s.wordsUsed == 0 {
		return nil
	}
	s.itemsUsed, s.stageUsed, s.wordsUsed = 0, 0, 0
	if err := s.stream.Synchronize(); err != nil {
		return fmt.Errorf("device %d: %w", s.owner.index, err)
	}
	return nil
}
