package transfer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// hits returns the seconds for decoding a row from device memory.
func (m *measuring) hits(k registry.Trained, rounds int) (float64, error) {
	c, free, err := m.attach(k.Codec)
	if err != nil {
		return 0, err
	}
	defer free()
	n := min(m.n, measuredHits)
	// The image has the encoded rows once, and then copies of all of them until it has as many slots as fit.
	var image []byte
	var words []slab.Location
	for _, row := range k.Rows {
		at := int64(len(image))
		if at+int64(slab.SlotBytes(len(row))) > m.slots.Size()-slab.TailSlack || len(words) == n*measuredSets {
			break
		}
		if len(row) == m.rowBytes {
			words = append(words, slab.Raw(0, at))
		} else {
			words = append(words, slab.Compressed(0, at, len(row)))
		}
		image = append(image, row...)
		image = append(image, make([]byte, slab.SlotBytes(len(row))-len(row))...)
	}
	if len(words) == 0 {
		return 0, fmt.Errorf("transfer: measuring: encoded rows (%d) must be at least 1", len(k.Rows))
	}
	size := int64(len(image))
	if err := errors.Join(m.s.Copy(m.slots.Slice(0, size), device.HostBuffer(image)), m.s.Synchronize()); err != nil {
		return 0, err
	}
	block := words
	for have := size; len(words) < n*measuredSets && have+size <= m.slots.Size()-slab.TailSlack; have += size {
		if err := m.s.Copy(m.slots.Slice(have, have+size), m.slots.Slice(0, size)); err != nil {
			return 0, err
		}
		for _, w := range block {
			if w.Compressed() {
				words = append(words, slab.Compressed(0, w.Offset()+have, w.Stored(m.rowBytes)))
			} else {
				words = append(words, slab.Raw(0, w.Offset()+have))
			}
		}
	}
	m.rng.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	sets := max(1, min(measuredSets, len(words)/n))
	list := make([]kernels.Found, sets*n)
	for i := range list {
		list[i] = kernels.Found{Word: uint64(words[i%len(words)]), Position: uint32(i % n)}
	}
	if err := errors.Join(m.upload(m.found, list), m.count(n, 0)); err != nil {
		return 0, err
	}
	set := func(rows, at int) kernels.Decode {
		from := int64(at*n) * kernels.FoundBytes
		return kernels.Decode{
			Found: m.found.Slice(from, from+int64(rows)*kernels.FoundBytes), Counters: m.counters, Slabs: []device.Buffer{m.slots}, Codec: c,
			Out: m.out.Slice(0, int64(n)*int64(m.rowBytes)), RowBytes: m.rowBytes, Leave: 1,
		}
	}
	first := min(n, prelude)
	warm := set(first, 0)
	if err := errors.Join(m.count(first, 0), m.load(func() error { return m.s.Launch(&warm) }), m.count(n, 0)); err != nil {
		return 0, err
	}
	batches := make([]kernels.Decode, sets) // must stay valid until they have run
	for i := range batches {
		batches[i] = set(n, i)
	}
	seconds, err := m.time(rounds, measureRepeat, func(i int) error { return m.s.Launch(&batches[i%sets]) })
	return seconds / float64(n), errors.Join(err, m.check())
}

// lookups returns the seconds of a lookup that hits, in a hashmap with as many rows as the batch. For a batch of one
// row that is the time of its launch.
func (m *measuring) lookups() (float64, error) {
	entries, rows := make([]hashmap.Entry, m.n), m.different(m.n)
	for i, row := range rows {
		entries[i] = hashmap.Entry{Key: hashmap.Key(0, row), Location: slab.Raw(0, 0)}
	}
	slices.SortFunc(entries, func(a, b hashmap.Entry) int { return int(a.Key) - int(b.Key) })
	entries = slices.CompactFunc(entries, func(a, b hashmap.Entry) bool { return a.Key == b.Key })
	layout := hashmap.LayoutFor(int64(len(entries)))
	image := make([]byte, layout.Bytes())
	if _, err := hashmap.View(image, layout).Build(entries); err != nil {
		return 0, err
	}
	table, err := device.AllocCopy(m.d, false, image, "measuring")
	if err != nil {
		return 0, err
	}
	defer m.d.Free(table)
	numbers, err := device.AllocCopy(m.d, false, asBytes(rows), "measuring")
	if err != nil {
		return 0, err
	}
	defer m.d.Free(numbers)
	lookup := kernels.Lookup{
		Map: table, Layout: layout, Limit: m.rows, Rows: numbers, Out: m.out.Slice(0, int64(m.n)*int64(m.rowBytes)), RowBytes: m.rowBytes,
		Found: m.found.Slice(0, int64(m.n)*kernels.FoundBytes), Counters: m.counters,
	}
	run := func(int) error { return errors.Join(m.s.Fill(m.counters, 0), m.s.Launch(&lookup)) }
	if err := m.load(func() error { return run(0) }); err != nil {
		return 0, err
	}
	seconds, err := m.time(measureRounds, measureRepeat, run)
	return seconds / float64(m.n), err
}
