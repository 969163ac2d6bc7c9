package transfer

import (
	"errors"
	"slices"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/kernels"
)

const (
	probeShare   = 32        // at most one row in probeShare is replaced, so that their copies take little memory
	maxProbeRows = 256 << 10 // most rows that are replaced, in addition to those of one batch
	probeGrain   = 1024      // rows that a goroutine copies at a time
)

// probeRows are rows all over a table whose places hold encoded rows of the sample while the codecs are measured.
// Reading a large table costs a GPU address translations, and the host cache misses. Copies of a few rows elsewhere
// would not show that.
type probeRows struct {
	tier      kernels.HostRows
	rows      []int64 // sets of rows, one for each batch, so that no batch finds rows in caches that the last one left there
	sets      int
	originals []byte        // contents of these rows
	bits      device.Buffer // a bit for each row of the table, set if the row is compressed
	found     device.Buffer // the rows, as a lookup lists misses
}

// prepareProbes prepares probe rows. It does not write any yet.
func (m *measuring) prepareProbes() error {
	p := &m.probes
	if p.rows != nil {
		return nil
	}
	bits, err := m.d.Alloc((m.rows+63)/64*8, "measuring")
	if err != nil {
		return err
	}
	m.buffers = append(m.buffers, bits)
	sets := max(1, min(measuredSets, maxProbeRows/m.n, int(m.rows/probeShare)/m.n))
	found, err := m.d.Alloc(int64(sets*m.n)*kernels.FoundBytes, "measuring")
	if err != nil {
		return err
	}
	m.buffers = append(m.buffers, found)
	*p = probeRows{tier: m.tier, rows: m.different(sets * m.n), sets: sets, bits: bits, found: found}
	list := make([]kernels.Found, len(p.rows))
	for i, row := range p.rows {
		list[i] = kernels.Found{Word: uint64(row), Position: uint32(i % m.n)}
	}
	if err := m.upload(found, list); err != nil {
		return err
	}
	p.originals = make([]byte, len(p.rows)*m.rowBytes)
	p.each(func(i int, row []byte) { copy(p.originals[i*m.rowBytes:][:m.rowBytes], row) })
	return nil
}

// each calls do for the place of every probe row, on all processors.
func (p *probeRows) each(do func(i int, place []byte)) {
	mem := p.tier.Mem.Bytes()
	host.Workers(0).For(len(p.rows), probeGrain, func(from, to int) {
		for i := from; i < to; i++ {
			do(i, mem[p.rows[i]*p.tier.Stride:][:p.tier.RowBytes])
		}
	})
}

// restore puts the table's rows back into their places. REQUIRES: no kernel runs.
func (p *probeRows) restore() {
	p.each(func(i int, place []byte) { copy(place, p.originals[i*len(place):]) })
	p.rows, p.originals = nil, nil
}

// write puts a codec's encoded rows into the places, and sets the row bits. REQUIRES: the stream is idle.
func (p *probeRows) write(m *measuring, encoded [][]byte) error {
	p.each(func(i int, place []byte) { copy(place, encoded[i%len(encoded)]) })
	coded, sum := 0, 0
	var raw []int64
	for i, row := range p.rows {
		if n := len(encoded[i%len(encoded)]); n == m.rowBytes {
			raw = append(raw, row)
		} else {
			coded, sum = coded+1, sum+n
		}
	}
	p.tier.Compressed, p.tier.Ahead, p.tier.Common = device.Buffer{}, 0, 0
	if coded == 0 {
		return nil
	}
	lengths := make([]int, len(encoded))
	for i, row := range encoded {
		lengths[i] = len(row)
	}
	p.tier.Compressed, p.tier.Ahead, p.tier.Common = p.bits, sum/coded, cheapest(lengths, m.rowBytes)
	if err := errors.Join(m.s.Fill(p.bits, 0xff), m.s.Synchronize()); err != nil || len(raw) == 0 {
		return err
	}
	slices.Sort(raw)
	words := make([]uint64, 0, 2*len(raw)) // index and value of each changed word of the bits
	for _, row := range raw {
		if n := len(words); n == 0 || words[n-2] != uint64(row/64) {
			words = append(words, uint64(row/64), ^uint64(0))
		}
		words[len(words)-1] &^= 1 << (row % 64)
	}
	list, err := m.d.AllocHost(int64(len(words))*8, "measuring")
	if err != nil {
		return err
	}
	defer m.d.Free(list)
	copy(list.Bytes(), asBytes(words))
	return errors.Join(m.s.Launch(&kernels.Store{Target: p.bits, Words: list}), m.s.Synchronize())
}

// codedMisses returns the seconds for reading and decoding an encoded row of the table. Rows are read in the order of
// misses, and shared as misses are.
func (m *measuring) codedMisses(k registry.Trained) (float64, error) {
	c, free, err := m.attach(k.Codec)
	if err != nil {
		return 0, err
	}
	defer free()
	if err := m.prepareProbes(); err != nil {
		return 0, err
	}
	p := &m.probes
	if err := p.write(m, k.Rows); err != nil {
		return 0, err
	}
	seconds, err := m.enqueueMisses(p.found, p.tier, c, p.sets, measureRounds)
	return seconds, errors.Join(err, m.check())
}
