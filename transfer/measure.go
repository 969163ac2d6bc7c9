package transfer

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// MeasureOptions say how Load measures the device before a codec is picked.
type MeasureOptions struct {
	// Share, if not nil, are the options by which the host's processors will help the device with misses.
	Share *ShareOptions
	// Reading, if not nil, says how the misses of a batch of n rows of a table will be read, but for the help of the host.
	Reading func(rows kernels.HostRows, n int64, share *ShareTable) Reading
}

var (
	// measureLimit is how long the codecs of a table are measured, all together. Loading their kernels is not counted: the cache needs those
	// of one of them anyhow, and drivers keep the others' for the next time.
	measureLimit = 300 * time.Millisecond
	// measureDevice measures codecs. Tests replace it.
	measureDevice = (*measuring).run
)

const (
	measuredLeast = 1024      // fewest rows of a measured batch
	measuredMost  = 256 << 10 // most rows
	measuredOut   = 128 << 20 // most bytes of a batch's output, and of the slots that hits are read from
	measuredHost  = 16 << 20  // most bytes of the encoded rows that misses are read from
	measuredSlabs = 4         // batches of hits that do not read a slot twice, if so many slots fit, so that GPU caches hold few of them
	shortRow      = 64        // bytes of a row whose reading is limited by requests and address translation, not by bytes
	sector        = 32        // bytes that a GPU's read of host memory is a multiple of
	measureRounds = 3         // the least time of so many counts
	measureRepeat = 2         // batches a round
	shareLearns   = 8         // batches in which a shared table learns its split
	shareRounds   = 5         // measured batches after them, one a round
	prelude       = 256       // rows of a batch that loads a kernel
)

// errTooSlow says that a device did not finish measuring within measureLimit.
var errTooSlow = errors.New("transfer: measuring takes too long")

// measuring measures what batches of a table would take on its device with each of some codecs. It only reads the table, which may
// be another program's memory: encoded rows are copies.
//
//   - Hits: the kernel that decodes them, on slots in device memory that hold copies of the sample's encoded rows.
//   - Misses, by the codec: the kernel that reads and decodes them, on a few encoded rows in page-locked memory.
//   - Misses, by the tier: the kernels that order and read them, shared with the host if the table would be, on the table itself. They read
//     as many bytes at the beginning of each row as the codec stores, as if these were raw rows. So addresses are as far apart as later.
//
// A miss takes the longer of the two. Lookups and launches are measured without a codec.
type measuring struct {
	d        device.Device
	tier     kernels.HostRows
	packed   bool
	rows     int64
	rowBytes int
	o        MeasureOptions
	codecs   []registry.Trained
	limit    time.Duration

	n                                  int // rows of a measured batch
	s                                  device.Stream
	from, to                           device.Timer
	deadline                           time.Time
	found, ordered, counters, pages    device.Buffer
	out, slots, sample, bits           device.Buffer
	buffers                            []device.Buffer
	sharer                             *Sharer
	plants                             bool // misses are measured on planted rows
	planted                            planted
	rng                                *rand.Rand
	byLength                           map[int]float64 // seconds of a miss in the tier, by the bytes that are read of it
	warm                               time.Duration   // how long loading kernels took
	batchSeconds, lookupSeconds, floor float64
}

// newMeasuring returns what measures codecs for batches of the given rows.
func (t *Tier) newMeasuring(o MeasureOptions, batch float64, codecs []registry.Trained) *measuring {
	n := measuredLeast
	for n*2 <= min(int(batch), measuredMost, max(measuredLeast, measuredOut/t.rowBytes)) {
		n *= 2
	}
	m := &measuring{
		d: t.home, tier: t.host, packed: t.mode == Packed, rows: t.rows, rowBytes: t.rowBytes, o: o, codecs: codecs, limit: measureLimit,
		n: int(min(int64(n), t.rows)), rng: rand.New(rand.NewPCG(1, 0x6d656173757265)), byLength: map[int]float64{},
	}
	m.tier.Compressed, m.tier.Index = device.Buffer{}, device.Buffer{}
	m.plants = t.adopted == nil && t.mode == InPlace && (BeyondTranslation(m.tier) || o.Share != nil && o.Share.Always)
	if m.packed { // as close together as they will be, at the most
		m.tier.Stride = roundUp(int64(t.rowBytes))
	}
	return m
}

// run measures all codecs. An error that wraps errTooSlow or device.ErrOutOfMemory says that the device is not to be measured.
func (m *measuring) run() (costs map[string]registry.Costs, err error) {
	start := time.Now()
	m.deadline = start.Add(m.limit)
	defer func() {
		if m.s != nil {
			err = errors.Join(err, m.s.Synchronize())
			m.s.Close()
		}
		if m.sharer != nil {
			m.sharer.Close()
		}
		m.planted.restore()
		for _, t := range []device.Timer{m.from, m.to} {
			if t != nil {
				t.Close()
			}
		}
		for _, b := range m.buffers {
			m.d.Free(b)
		}
	}()
	if err := m.open(); err != nil {
		return nil, err
	}
	if err := m.common(); err != nil {
		return nil, err
	}
	costs = map[string]registry.Costs{}
	for _, k := range m.codecs {
		if costs[k.Name], err = m.measure(k); err != nil {
			return nil, fmt.Errorf("codec %s: %w", k.Name, err)
		}
	}
	return costs, nil
}

// open allocates the memory of the measured batches.
func (m *measuring) open() (err error) {
	if m.s, err = m.d.NewStream(); err != nil {
		return err
	}
	if m.from, err = m.d.NewTimer(); err != nil {
		return err
	}
	if m.to, err = m.d.NewTimer(); err != nil {
		return err
	}
	slot := int64(slab.SlotBytes(m.rowBytes))
	slots := min(m.rows*slot, max(measuredOut, int64(m.n)*slot), int64(measuredSlabs*m.n)*slot)
	stride := roundUp(int64(m.rowBytes))
	host := min(int64(m.n), max(1, measuredHost/stride))
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
		alloc func(int64, string) (device.Buffer, error)
	}{
		{&m.found, int64(m.n) * kernels.FoundBytes * measuredSlabs, m.d.Alloc}, {&m.ordered, int64(m.n) * kernels.FoundBytes, m.d.Alloc},
		{&m.counters, kernels.CountersBytes, m.d.Alloc}, {&m.pages, kernels.OrderBytes, m.d.Alloc}, {&m.out, int64(m.n) * int64(m.rowBytes), m.d.Alloc},
		{&m.slots, slots + slab.TailSlack, m.d.Alloc}, {&m.bits, (host + 63) / 64 * 8, m.d.Alloc}, {&m.sample, host*stride + slab.TailSlack, m.d.AllocHost},
	} {
		if *b.to, err = b.alloc(b.bytes, "measuring"); err != nil {
			return err
		}
		m.buffers = append(m.buffers, *b.to)
	}
	return nil
}

// time returns the seconds of what enqueue enqueues: the least of several rounds. It is called with the number of the batch.
func (m *measuring) time(rounds, repeat int, enqueue func(batch int) error) (float64, error) {
	best, batch := math.Inf(1), 0
	for range rounds {
		if time.Now().After(m.deadline) {
			return 0, errTooSlow
		}
		if err := m.s.Record(m.from); err != nil {
			return 0, err
		}
		for range repeat {
			if err := enqueue(batch); err != nil {
				return 0, err
			}
			batch++
		}
		if err := errors.Join(m.s.Record(m.to), m.s.Synchronize()); err != nil {
			return 0, err
		}
		took, err := m.to.Since(m.from)
		if err != nil {
			return 0, err
		}
		best = min(best, max(took, time.Nanosecond).Seconds()/float64(repeat))
	}
	return best, nil
}

// load runs something that may have a kernel loaded, and does not count the time.
func (m *measuring) load(run func() error) error {
	start := time.Now()
	err := errors.Join(run(), m.s.Synchronize())
	took := time.Since(start)
	m.warm += took
	m.deadline = m.deadline.Add(took)
	return err
}

// count sets the counters of a batch of so many hits and misses.
func (m *measuring) count(hits, misses int) error {
	c := []kernels.Counters{{Hits: uint32(hits), Misses: uint32(misses)}}
	return errors.Join(m.s.Copy(m.counters, device.HostBuffer(asBytes(c))), m.s.Synchronize())
}

// upload copies a list to the device.
func (m *measuring) upload(to device.Buffer, list []kernels.Found) error {
	b := asBytes(list)
	return errors.Join(m.s.Copy(to.Slice(0, int64(len(b))), device.HostBuffer(b)), m.s.Synchronize())
}

// common measures what does not depend on the codec: lookups, launches, and short misses. It first finds out how many rows a batch can have
// for all to be measured in time.
func (m *measuring) common() error {
	raw := registry.Trained{Name: registry.None, Ratio: 1}
	if i := slices.IndexFunc(m.codecs, func(k registry.Trained) bool { return k.Name == registry.None }); i >= 0 {
		raw = m.codecs[i]
	}
	most := m.n
	m.n = min(m.n, measuredLeast)
	hits, err := m.hits(raw, 1)
	if err != nil {
		return err
	}
	misses, err := m.misses(m.tier.RowBytes, 1)
	if err != nil {
		return err
	}
	// Batches that all codecs take together, in each of three ways.
	batches := float64((len(m.codecs) + 2) * 3 * (measureRounds*measureRepeat + 1))
	row := max(hits, misses)
	for m.n*2 <= most && time.Duration(batches*row*float64(m.n*2)*float64(time.Second)) < m.limit/2 {
		m.n *= 2
	}
	if most < 2*m.n && time.Duration(batches*row*float64(most)*float64(time.Second)) < m.limit/2 {
		m.n = most // all rows of a small table
	}
	if m.lookupSeconds, err = m.lookups(); err != nil {
		return err
	}
	if err := m.share(); err != nil {
		return err
	}
	if m.floor, err = m.misses(min(shortRow, m.rowBytes), measureRounds); err != nil {
		return err
	}
	kept := maps.Clone(m.byLength)
	clear(m.byLength)
	n := m.n // the launches of a batch take what a batch of one row does
	m.n = 1
	defer func() { m.n, m.byLength = n, kept }()
	one, err := m.hits(raw, measureRounds)
	if err != nil {
		return err
	}
	other, err := m.misses(m.rowBytes, measureRounds)
	if err != nil {
		return err
	}
	lookup, err := m.lookups()
	m.batchSeconds = max(one, other) + lookup
	return err
}

// measure returns the costs with one codec.
func (m *measuring) measure(k registry.Trained) (c registry.Costs, err error) {
	c.Batch, c.Lookup = m.batchSeconds, m.lookupSeconds
	if c.Hit, err = m.hits(k, measureRounds); err != nil {
		return c, err
	}
	stored := float64(m.rowBytes) / k.Ratio
	if m.plants {
		read, err := m.codedMisses(k)
		c.Miss, c.MissByte = m.floor, read/stored
		return c, err
	}
	decoded, err := m.sampleMisses(k)
	if err != nil {
		return c, err
	}
	read, err := m.misses(min(m.rowBytes, (int(stored)+sector-1)/sector*sector), measureRounds)
	if err != nil {
		return c, err
	}
	c.Miss, c.MissByte = m.floor, read/stored
	if decoded > read { // misses wait for the decoder, not for the link
		c.Miss = max(c.Miss, decoded)
	}
	return c, nil
}

// attach puts a codec's metadata on the device.
func (m *measuring) attach(c codec.Codec) (kernels.Codec, func(), error) {
	k, err := kernels.AttachCodec(m.d, c)
	return k, func() { m.d.Free(k.Meta) }, err
}

// hits returns the seconds in which a row is decoded from device memory.
func (m *measuring) hits(k registry.Trained, rounds int) (float64, error) {
	c, free, err := m.attach(k.Codec)
	if err != nil {
		return 0, err
	}
	defer free()
	// The encoded rows, once, and then copies of all of them until there are as many slots as fit.
	var image []byte
	var words []slab.Location
	for _, row := range k.Rows {
		at := int64(len(image))
		if at+int64(slab.SlotBytes(len(row))) > m.slots.Size()-slab.TailSlack || len(words) == m.n*measuredSlabs {
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
	for have := size; len(words) < m.n*measuredSlabs && have+size <= m.slots.Size()-slab.TailSlack; have += size {
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
	sets := max(1, min(measuredSlabs, len(words)/m.n))
	list := make([]kernels.Found, sets*m.n)
	for i := range list {
		list[i] = kernels.Found{Word: uint64(words[i%len(words)]), Position: uint32(i % m.n)}
	}
	if err := errors.Join(m.upload(m.found, list), m.count(m.n, 0)); err != nil {
		return 0, err
	}
	set := func(n, at int) kernels.Decode {
		from := int64(at*m.n) * kernels.FoundBytes
		return kernels.Decode{
			Found: m.found.Slice(from, from+int64(n)*kernels.FoundBytes), Counters: m.counters, Slabs: []device.Buffer{m.slots}, Codec: c,
			Out: m.out.Slice(0, int64(m.n)*int64(m.rowBytes)), RowBytes: m.rowBytes, Leave: 1,
		}
	}
	first := min(m.n, prelude)
	warm := set(first, 0)
	if err := errors.Join(m.count(first, 0), m.load(func() error { return m.s.Launch(&warm) }), m.count(m.n, 0)); err != nil {
		return 0, err
	}
	batches := make([]kernels.Decode, sets) // valid until they have run
	for i := range batches {
		batches[i] = set(m.n, i)
	}
	seconds, err := m.time(rounds, measureRepeat, func(i int) error { return m.s.Launch(&batches[i%sets]) })
	return seconds / float64(m.n), errors.Join(err, m.check())
}

// check returns an error if a kernel found a row that does not decode: a measurement of such rows says nothing.
func (m *measuring) check() error {
	c := make([]kernels.Counters, 1)
	if err := errors.Join(m.s.Copy(device.HostBuffer(asBytes(c)), m.counters), m.s.Synchronize()); err != nil {
		return err
	}
	if c[0].Corrupt != 0 {
		return fmt.Errorf("transfer: measuring: rows (%d) did not decode", c[0].Corrupt)
	}
	return nil
}

// sampleMisses returns the seconds in which a row is read from page-locked memory and decoded, where neither address translation nor other
// rows' reads are in its way.
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

// different returns n row numbers of the table, one in each of equal parts, in any order.
func (m *measuring) different(n int) []int64 {
	rows := make([]int64, n)
	for i := range rows {
		from, to := int64(i)*m.rows/int64(n), int64(i+1)*m.rows/int64(n)
		rows[i] = from + m.rng.Int64N(max(1, to-from))
	}
	m.rng.Shuffle(n, func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}

// misses returns the seconds in which so many bytes at the beginning of a row of the table are read, in the order and with the help
// that misses have. Results are kept, by the length, if they are of several rounds.
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
	if err := errors.Join(m.upload(m.found, list), m.count(0, m.n)); err != nil {
		return 0, err
	}
	seconds, err := m.enqueueMisses(view, kernels.Codec{}, 1, rounds)
	if err == nil && rounds > 1 {
		m.byLength[length] = seconds
	}
	return seconds, err
}

// enqueueMisses returns the seconds of a miss of batches that take turns at the first sets of m.found.
func (m *measuring) enqueueMisses(view kernels.HostRows, c kernels.Codec, sets, rounds int) (float64, error) {
	var share *ShareTable
	var reading Reading
	if m.o.Reading != nil {
		reading = m.o.Reading(m.tier, int64(m.n), nil)
	}
	if m.sharer != nil {
		share = m.sharer.Table(view, c)
		reading.Share = share
	}
	var plan Plan
	enqueue := func(i int) error {
		bytes := int64(m.n) * kernels.FoundBytes
		batch := Batch{
			Found: m.found.Slice(int64(i%sets)*bytes, int64(i%sets+1)*bytes), Ordered: m.ordered.Slice(0, bytes), Counters: m.counters, Buckets: m.pages,
			Out: m.out.Slice(0, int64(m.n)*int64(view.RowBytes)), Reading: reading,
		}
		err := plan.Enqueue(m.s, view, c, batch, nil)
		plan.Enqueued(err)
		return err
	}
	// The first batch loads the kernels.
	if err := m.load(func() error { return enqueue(0) }); err != nil {
		return 0, err
	}
	repeat := measureRepeat
	if share != nil { // it learns from batches that have ended
		for i := range shareLearns {
			if time.Now().After(m.deadline) {
				return 0, errTooSlow
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

// share opens what shares misses, if the table would be shared.
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

// lookups returns the seconds of a lookup that hits, in a hashmap of as many rows as the batch has; of a batch of one row, those of its launch.
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
	table, err := device.AllocCopy(m.d, image, "measuring")
	if err != nil {
		return 0, err
	}
	defer m.d.Free(table)
	numbers, err := device.AllocCopy(m.d, asBytes(rows), "measuring")
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
