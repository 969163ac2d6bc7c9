package kernels

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// SampleRing is a bounded ring of sampled accesses in device memory, which Lookup appends to on one device and the host drains: in
// page-locked memory, each record would cross the link by itself, and the batch would wait for it. Writers never wait: a reader that comes
// too late finds records overwritten, and counts them as lost. Any number of batches may append at once; Drain is called by one goroutine
// at a time, beside them.
type SampleRing struct {
	d       device.Device
	records device.Buffer // SampleRecord
	head    device.Buffer // records claimed so far
	// stream copies new records to stage, page-locked memory of the same layout, and the head behind them. Without a stream the device is in
	// host memory, and its records are read where they are.
	stream device.Stream
	stage  device.Buffer
	mask   uint64
	tail   uint64 // of the reader
	late   uint64 // where the last Drain ended although later records were there; 1 more, and 0 for nowhere
	since  time.Time
}

// maxAppended is the most records that are appended between two calls of Drain. More come from a process that has written nonsense to the head.
const maxAppended = 1 << 50

// lateAfter is how long a record may be on its way when later ones are there. A thread of a busy machine may be held up for tens of milliseconds.
var lateAfter = 100 * time.Millisecond

// NewSampleRing returns a ring of so many records, a power of two, in memory that other processes can map if shared is set.
func NewSampleRing(d device.Device, shared bool, capacity int) (_ *SampleRing, err error) {
	if capacity < 1 || bits.OnesCount(uint(capacity)) != 1 || capacity > 1<<31 {
		return nil, fmt.Errorf("kernels: sample ring's capacity (%d) must be a power of two up to 2^31", capacity)
	}
	r := &SampleRing{d: d, mask: uint64(capacity - 1)}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	bytes := int64(capacity) * abi.SampleRecordBytes
	if r.records, err = device.Alloc(d, shared, bytes, "sample ring"); err != nil {
		return nil, err
	}
	if r.head, err = device.Alloc(d, shared, 8, "sample ring"); err != nil {
		return nil, err
	}
	if !d.NeedsStaging() {
		return r, nil
	}
	if r.stage, err = d.AllocHost(bytes+8, "staging of samples"); err != nil {
		return nil, err
	}
	if r.stream, err = d.NewStream(); err != nil {
		return nil, err
	}
	return r, nil
}

// Close frees the ring. No batch may append to it any more.
func (r *SampleRing) Close() {
	if r.stream != nil {
		r.stream.Close()
	}
	r.d.Free(r.stage)
	r.d.Free(r.records)
	r.d.Free(r.head)
}

// Memory returns the ring's memory, to which other processes may append by a ring of Attach.
func (r *SampleRing) Memory() (records, head device.Buffer) { return r.records, r.head }

// Attach makes r, a zero SampleRing, append to the memory of another process's ring, which Close frees. r is not drained.
func (r *SampleRing) Attach(d device.Device, records, head device.Buffer) {
	*r = SampleRing{d: d, records: records, head: head, mask: uint64(records.Size()/abi.SampleRecordBytes - 1)}
}

// fetch returns the records from the reader's tail on, each in its slot, and how many had been claimed before they were read. Slots of records that
// are older or not there yet have older ones. It returns nil if there is nothing new, or the device fails, which every batch reports.
func (r *SampleRing) fetch() (records []uint64, head uint64) {
	if r.stream == nil {
		return view[uint64](r.records), atomic.LoadUint64(&view[uint64](r.head)[0])
	}
	size := r.records.Size()
	at := r.stage.Slice(size, size+8)
	if r.stream.Copy(at, r.head) != nil || r.stream.Synchronize() != nil {
		return nil, 0
	}
	head = view[uint64](at)[0]
	if head == r.tail {
		return nil, head
	}
	from, to := r.tail&r.mask, head&r.mask
	parts := [2][2]uint64{{from, to}}
	switch {
	case head-r.tail > r.mask: // all of the ring
		parts[0] = [2]uint64{0, r.mask + 1}
	case from >= to:
		parts = [2][2]uint64{{from, r.mask + 1}, {0, to}}
	}
	for _, p := range parts {
		if p[0] == p[1] {
			continue
		}
		first, end := int64(p[0])*abi.SampleRecordBytes, int64(p[1])*abi.SampleRecordBytes
		if r.stream.Copy(r.stage.Slice(first, end), r.records.Slice(first, end)) != nil {
			r.stream.Synchronize()
			return nil, head
		}
	}
	if r.stream.Synchronize() != nil {
		return nil, head
	}
	return view[uint64](r.stage), head
}

// Sampling says which accesses of a batch Lookup appends to a SampleRing. The zero value keeps none.
type Sampling struct{ args abi.Sampling }

// Sampling returns what a Lookup of the given batch number keeps: this share of all accesses, this share of the misses, and every access to
// this share of the keys, all 0 to 1.
func (r *SampleRing) Sampling(seed uint64, batch uint32, accesses, misses, keys float64) Sampling {
	return Sampling{abi.Sampling{
		Ring: r.records.Addr(), Head: r.head.Addr(),
		AccessSeed: hashmap.Hash(seed ^ uint64(batch)), KeySeed: hashmap.Hash(seed), Mask: uint32(r.mask),
		AccessBelow: uint32(accesses * math.MaxUint32), KeyBelow: uint32(keys * math.MaxUint32), MissBelow: uint32(misses * math.MaxUint32),
	}}
}

// keeps returns what an access is kept for.
func (s *Sampling) keeps(key uint64, position uint32, miss bool) (kept uint32) {
	draw := uint32(hashmap.Hash(s.args.AccessSeed^uint64(position)) >> 32)
	if draw < s.args.AccessBelow {
		kept = abi.SampledAccess
	}
	if miss && draw < s.args.MissBelow {
		kept |= abi.SampledMiss
	}
	if s.args.KeyBelow != 0 && uint32(hashmap.Hash(s.args.KeySeed^key)>>32) < s.args.KeyBelow {
		kept |= abi.SampledKey
	}
	return kept
}

// append writes a record, on the host.
func (r *SampleRing) append(key uint64, kept uint32) {
	at := atomic.AddUint64(&view[uint64](r.head)[0], 1) - 1
	lap := uint32(at/(r.mask+1)) + 1
	words := view[uint64](r.records)[2*(at&r.mask):]
	atomic.StoreUint64(&words[0], key)
	atomic.StoreUint64(&words[1], uint64(sampleCheck(key, lap)|kept)<<32|uint64(lap))
}

// sampleCheck returns the upper bits of a record's check.
func sampleCheck(key uint64, lap uint32) uint32 {
	return uint32(hashmap.Hash(key^uint64(lap))>>35) << 3
}

// Drain yields the records written since the last call, at most as many as the ring has, with what each was kept for, and returns how many
// were overwritten before they were read. So it returns however fast devices write. A record that is not there yet ends the call; the next one goes on with it, or, if that is
// lateAfter later, counts it as lost if later ones are there: its writer was overtaken by a whole ring, and has put an old record in the place of a new one.
//
// Other processes may write to the ring, so that nothing in it is trusted: whatever it has, Drain passes each place once and never goes beyond the head,
// and finds the records of others again when the nonsense has been overwritten.
func (r *SampleRing) Drain(yield func(key uint64, kept uint32)) (lost uint64) {
	words, head := r.fetch()
	if words == nil {
		return 0
	}
	switch behind := head - r.tail; {
	case behind > maxAppended: // also a head that has gone back
		r.tail, r.late = head, 0
		return 0
	case behind > r.mask+1:
		r.tail, lost = head-r.mask-1, behind-r.mask-1
	}
	for left := r.mask + 1; left > 0; {
		slot, want := r.tail&r.mask, uint32(r.tail/(r.mask+1))+1
		key := atomic.LoadUint64(&words[2*slot])
		rest := atomic.LoadUint64(&words[2*slot+1])
		lap, check := uint32(rest), uint32(rest>>32)
		if lap > want { // overwritten by record number at: those up to a ring's length before it are gone too
			at := uint64(lap-1)*(r.mask+1) + slot
			oldest := min(max(r.tail+1, at-r.mask), head)
			if oldest <= r.tail {
				return lost // the records before it are newer than the head, and so is it
			}
			lost += oldest - r.tail
			r.tail = oldest
			continue
		}
		if lap != want || check&^7 != sampleCheck(key, lap) {
			switch {
			case !r.later(words):
				r.late = 0
				return lost
			case r.late != r.tail+1:
				r.late, r.since = r.tail+1, time.Now()
				return lost
			case time.Since(r.since) < lateAfter:
				return lost
			}
			r.tail++
			r.late = 0
			lost++
			continue
		}
		yield(key, check&7)
		r.tail++
		left--
	}
	return lost
}

// later says whether one of the records after the next is there: of some warps', which are claimed at once.
func (r *SampleRing) later(words []uint64) bool {
	for at := r.tail + 1; at <= r.tail+min(256, r.mask); at++ {
		lap := uint32(atomic.LoadUint64(&words[2*(at&r.mask)+1]))
		if lap >= uint32(at/(r.mask+1))+1 {
			return true
		}
	}
	return false
}
