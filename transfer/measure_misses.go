package transfer

import (
	"errors"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// sampleMisses returns the seconds for reading a row from page-locked memory and decoding it, undisturbed by address
// translation and by other rows' reads.
func (m *measuring) sampleMisses(k registry.Trained) (float64, error) {
	c, free, err := m.attach(k.Codec)
	if err != nil {
		return 0, err
	}
	defer free()
	stride := roundUp(int64(m.rowBytes))
	n := int(min(int64(m.n), (m.sample.Size()-slab.TailSlack)/stride))
	rows := kernels.HostRows{Mem: m.sample, Stride: stride, RowBytes: m.rowBytes}
	mem, bits := m.sample.Bytes(), make([]uint64, m.bits.Size()/8)
	coded, sum := 0, 0
	for i := range n {
		row := k.Rows[i%len(k.Rows)]
		copy(mem[int64(i)*stride:], row)
		if len(row) < m.rowBytes {
			bits[i/64] |= 1 << (i % 64)
			coded, sum = coded+1, sum+len(row)
		}
	}
	if coded > 0 {
		rows.Compressed, rows.Ahead = m.bits, sum/coded
	}
	list := make([]kernels.Found, n)
	for i, at := range m.rng.Perm(n) {
		list[i] = kernels.Found{Word: uint64(i), Position: uint32(at)}
	}
	if err := errors.Join(m.s.Copy(m.bits, device.HostBuffer(asBytes(bits))), m.upload(m.found, list)); err != nil {
		return 0, err
	}
	batch := func(n int) kernels.Fetch {
		return kernels.Fetch{
			Misses: m.found.Slice(0, int64(n)*kernels.FoundBytes), Counters: m.counters, Tier: rows, Codec: c,
			Out: m.out.Slice(0, int64(m.n)*int64(m.rowBytes)),
		}
	}
	first := min(n, prelude)
	warm, k2 := batch(first), batch(n)
	if err := errors.Join(m.count(0, first), m.load(func() error { return m.s.Launch(&warm) }), m.count(0, n)); err != nil {
		return 0, err
	}
	seconds, err := m.time(measureRounds, measureRepeat, func(int) error { return m.s.Launch(&k2) })
	return seconds / float64(n), errors.Join(err, m.check())
}

// different returns n row numbers, one from each of n equal parts of the table, in any order.
func (m *measuring) different(n int) []int64 {
	rows := make([]int64, n)
	for i := range rows {
		from, to := int64(i)*m.rows/int64(n), int64(i+1)*m.rows/int64(n)
		rows[i] = from + m.rng.Int64N(max(1, to-from))
	}
	m.rng.Shuffle(n, func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}

// misses returns the seconds for reading the first length bytes of a row of the table. Rows are read in the order of
// misses, and shared as misses are. Results of several rounds are kept by length.
func (m *measuring) misses(length, rounds int) (float64, error) {
	if seconds, ok := m.byLength[length]; ok && rounds > 1 {
		return seconds, nil
	}
	view := m.tier
	if m.packed {
		view.Stride = roundUp(int64(length))
	}
	view.RowBytes = length
	list := make([]kernels.Found, m.n)
	for i, row := range m.different(m.n) {
		list[i] = kernels.Found{Word: uint64(row), Position: uint32(i)}
	}
	if err := m.upload(m.found, list); err != nil {
		return 0, err
	}
	seconds, err := m.enqueueMisses(m.found, view, kernels.Codec{}, 1, rounds)
	if err == nil && rounds > 1 {
		m.byLength[length] = seconds
	}
	return seconds, err
}

// enqueueMisses returns the seconds of a miss. Its batches read the given number of sets of a list of misses in turn.
func (m *measuring) enqueueMisses(found device.Buffer, view kernels.HostRows, c kernels.Codec, sets, rounds int) (float64, error) {
	var share *ShareTable
	var reading Reading
	if m.o.Reading != nil {
		reading = m.o.Reading(m.tier, int64(m.n), nil)
	}
	if m.sharer != nil {
		share = m.sharer.Table(view, c)
		reading.Share = share
	}
	learns := shareLearns
	if share != nil && m.shared != nil {
		share.begin(m.shared)
		learns = shareRelearns
	}
	m.shared = share
	var plan Plan
	enqueueRows := func(i, n int) error {
		from, bytes := int64(i%sets*m.n)*kernels.FoundBytes, int64(n)*kernels.FoundBytes
		batch := Batch{
			Found: found.Slice(from, from+bytes), Ordered: m.ordered.Slice(0, bytes), Counters: m.counters, Buckets: m.pages,
			Out: m.out.Slice(0, int64(m.n)*int64(view.RowBytes)), Reading: reading,
		}
		err := plan.Enqueue(m.s, view, c, batch, nil)
		plan.Enqueued(err)
		return err
	}
	enqueue := func(i int) error { return enqueueRows(i, m.n) }
	// The first batch loads the kernels.
	first := min(m.n, prelude)
	if err := errors.Join(m.count(0, first), m.load(func() error { return enqueueRows(0, first) }), m.count(0, m.n)); err != nil {
		return 0, err
	}
	repeat := measureRepeat
	if share != nil { // share learns from batches that have ended
		for i := range learns {
			if err := m.goOn(); err != nil {
				return 0, err
			}
			if err := errors.Join(enqueue(i+1), m.s.Synchronize()); err != nil {
				return 0, err
			}
		}
		rounds, repeat = max(rounds, shareRounds), 1
	}
	seconds, err := m.time(rounds, repeat, enqueue)
	return seconds / float64(m.n), err
}

// share opens a Sharer and the table's share, if the table would be shared.
func (m *measuring) share() error {
	full := m.tier
	if m.packed {
		full.Stride = 0
	}
	if m.o.Share == nil || !m.o.Share.Always && (m.n < shareBatch || !Shareable(full)) {
		return nil
	}
	o := *m.o.Share
	o.StageBytes = int64(m.n) * int64(slab.SlotBytes(m.rowBytes))
	s, err := NewSharer(m.d, o)
	if errors.Is(err, ErrNoShare) || errors.Is(err, device.ErrOutOfMemory) {
		return nil
	}
	m.sharer = s
	return err
}
