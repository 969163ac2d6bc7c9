package transfer

import (
	"context"
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
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// MeasureOptions say how Load measures the device before a codec is picked.
type MeasureOptions struct {
	// Share, if not nil, are the options for host threads that will share the device's misses.
	Share *ShareOptions
	// Reading, if not nil, returns how the misses of a batch of n rows of a table will be read, apart from share.
	Reading func(rows kernels.HostRows, n int64, share *ShareTable) Reading
}

var (
	// measureLimit is the most time for measuring all codecs of a table. Loading kernels does not count, as drivers
	// keep loaded kernels for the next time.
	measureLimit = 300 * time.Millisecond
	// measureDevice measures codecs. Tests replace it.
	measureDevice = (*measuring).run
)

const (
	measuredLeast = 1024      // fewest rows of a measured batch
	measuredMost  = 256 << 10 // most rows
	measuredTrial = 16 << 10  // rows of the batch that the time of longer ones is estimated from
	// A batch of hits has at most measuredHits rows, and one of lookups measuredLookups, as these take much less time
	// than misses.
	measuredHits    = 64 << 10
	measuredLookups = 32 << 10
	measuredBatches = 8         // about how many of the long batches each codec takes
	measuredOut     = 128 << 20 // most bytes of a batch's output, and of the slots that hits read
	measuredHost    = 16 << 20  // most bytes of encoded rows that misses read
	measuredSets    = 4         // most batches that take turns with different rows, so that caches do not hold what a batch reads
	shortRow        = 64        // a row of fewer bytes takes no less time
	sector          = 32        // a GPU reads host memory in multiples of this, in bytes
	measureRounds   = 3         // the fastest round counts
	measureRepeat   = 2         // batches in a round
	shareLearns     = 8         // batches for the first shared table to learn its split before it is measured
	shareRelearns   = 3         // the same for later tables, which begin with the split of the one before
	shareRounds     = 5         // rounds for a shared table, of one batch each
	prelude         = 256       // rows of the batch that loads a kernel
)

// errTooSlow says that a device did not finish measuring within measureLimit.
var errTooSlow = errors.New("transfer: measuring takes too long")

// measuring measures how long hits, misses, lookups and launches take on the table's device, with each of the given
// codecs. It uses the kernels that serve batches, on the sample's encoded rows:
//
//   - Hits are decoded from device memory that is filled with copies of these rows.
//   - Misses of large tables with short rows (BeyondTranslation or Shareable) are read from probe rows. These are encoded
//     rows in the places of rows all over the table, whose contents are restored afterwards.
//   - Misses of other tables are read in two ways, and the longer time counts. The first way reads 16 MiB of encoded rows
//     from other page-locked memory, which shows how fast they are decoded. The second way reads rows all over the table,
//     as many bytes as the codec stores, without decoding, which shows how fast they arrive.
//   - Adopted memory is not written to. If host threads share its misses, the time of the second way counts. What a hit
//     takes longer than a hit of an uncompressed row is added.
//
// Lookups and launches do not depend on the codec.
type measuring struct {
	d        device.Device
	tier     kernels.HostRows
	packed   bool
	rows     int64
	rowBytes int
	o        MeasureOptions
	ctx      context.Context // ends measuring early, with its error
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
	useProbes                          bool // measure misses on probe rows
	probes                             probeRows
	shared                             *ShareTable // the last one measured; nil if host threads do not share misses
	plainHit                           float64     // seconds of a hit of None
	rng                                *rand.Rand
	byLength                           map[int]float64 // seconds of a miss in the tier, by the bytes read of it
	warm                               time.Duration   // time that loading kernels took
	batchSeconds, lookupSeconds, floor float64
}

// newMeasuring prepares to measure codecs for batches of the given rows.
func (t *Tier) newMeasuring(o MeasureOptions, batch float64, codecs []registry.Trained) *measuring {
	n := measuredLeast
	for n*2 <= min(int(batch), measuredMost, max(measuredLeast, measuredOut/t.rowBytes)) {
		n *= 2
	}
	m := &measuring{
		d: t.home, tier: t.host, packed: t.mode == Packed, rows: t.rows, rowBytes: t.rowBytes, o: o, ctx: context.Background(), codecs: codecs, limit: measureLimit,
		n: int(min(int64(n), t.rows)), rng: rand.New(rand.NewPCG(1, 0x6d656173757265)), byLength: map[int]float64{},
	}
	m.tier.Compressed, m.tier.Index = device.Buffer{}, device.Buffer{}
	m.useProbes = t.adopted == nil && t.mode == InPlace && (BeyondTranslation(m.tier) || Shareable(m.tier) || o.Share != nil && o.Share.Always)
	if m.packed { // the closest that the packed rows can lie
		m.tier.Stride = roundUp(int64(t.rowBytes))
	}
	return m
}

// run measures None, at least one other codec if there is one, and further codecs while there is time. An error that
// wraps errTooSlow or device.ErrOutOfMemory says that the device cannot be measured.
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
		m.probes.restore()
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
	longest := time.Duration(0)
	for _, k := range m.order() {
		begin, loading := time.Now(), m.warm
		if len(costs) > 1 && begin.Add(longest).After(m.deadline) {
			break
		}
		c, err := m.measure(k)
		if len(costs) > 1 && errors.Is(err, errTooSlow) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("codec %s: %w", k.Name, err)
		}
		costs[k.Name] = c
		longest = max(longest, time.Since(begin)-(m.warm-loading))
	}
	return costs, nil
}

// order returns the codecs in the order in which they are measured. None comes first, as the others are compared with
// it, and then the most promising ones. Those for which no time is left are not measured.
func (m *measuring) order() []registry.Trained {
	isNone := func(k registry.Trained) bool { return k.Name == registry.None }
	all := slices.Clone(m.codecs)
	if i := slices.IndexFunc(all, isNone); i > 0 {
		none := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, none)
	}
	return all
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
	slots := min(m.rows*slot, max(measuredOut, int64(m.n)*slot), int64(measuredSets*m.n)*slot)
	stride := roundUp(int64(m.rowBytes))
	host := min(int64(m.n), max(1, measuredHost/stride))
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
		alloc func(int64, string) (device.Buffer, error)
	}{
		{&m.found, int64(m.n) * kernels.FoundBytes * measuredSets, m.d.Alloc}, {&m.ordered, int64(m.n) * kernels.FoundBytes, m.d.Alloc},
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

// goOn returns errTooSlow when no time is left, and the context's error once that has ended.
func (m *measuring) goOn() error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if time.Now().After(m.deadline) {
		return errTooSlow
	}
	return nil
}

// time returns the seconds of the work that enqueue enqueues: the least of several rounds. enqueue is called with the
// number of the batch.
func (m *measuring) time(rounds, repeat int, enqueue func(batch int) error) (float64, error) {
	best, batch := math.Inf(1), 0
	for range rounds {
		if err := m.goOn(); err != nil {
			return 0, err
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

// load runs something that may load a kernel, and leaves its time out of the limit.
func (m *measuring) load(run func() error) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	err := errors.Join(run(), m.s.Synchronize())
	took := time.Since(start)
	m.warm += took
	m.deadline = m.deadline.Add(took)
	return err
}

// count sets the counters of a batch with the given hits and misses.
func (m *measuring) count(hits, misses int) error {
	c := []kernels.Counters{{Hits: uint32(hits), Misses: uint32(misses)}}
	return errors.Join(m.s.Copy(m.counters, device.HostBuffer(asBytes(c))), m.s.Synchronize())
}

// upload copies a list to the device.
func (m *measuring) upload(to device.Buffer, list []kernels.Found) error {
	b := asBytes(list)
	return errors.Join(m.s.Copy(to.Slice(0, int64(len(b))), device.HostBuffer(b)), m.s.Synchronize())
}

// common measures what does not depend on the codec: lookups, launches and short misses. First it finds how many rows
// a batch can have so that everything is measured in time.
func (m *measuring) common() error {
	raw := registry.Trained{Name: registry.None, Ratio: 1}
	if i := slices.IndexFunc(m.codecs, func(k registry.Trained) bool { return k.Name == registry.None }); i >= 0 {
		raw = m.codecs[i]
	}
	most, row := m.n, 0.0
	for _, n := range []int{measuredLeast, measuredTrial} { // a row takes less in longer batches, so the second estimate is closer
		if m.n = min(most, n); n != measuredLeast && !m.affords(m.n, row) {
			break
		}
		hits, err := m.hits(raw, 1)
		if err != nil {
			return err
		}
		misses, err := m.misses(m.tier.RowBytes, 1)
		if err != nil {
			return err
		}
		row = max(hits, misses)
	}
	for m.n = min(most, measuredLeast); m.n*2 <= most && m.affords(m.n*2, row); {
		m.n *= 2
	}
	if most < 2*m.n && m.affords(most, row) {
		m.n = most // all rows of a small table
	}
	whole := m.n
	m.n = min(whole, measuredLookups)
	lookups, err := m.lookups()
	if err != nil {
		return err
	}
	m.n, m.lookupSeconds = whole, lookups
	if err := m.share(); err != nil {
		return err
	}
	if m.floor, err = m.misses(min(shortRow, m.rowBytes), measureRounds); err != nil {
		return err
	}
	kept := maps.Clone(m.byLength)
	clear(m.byLength)
	n := m.n // the launches of a batch take as long as those of a batch of one row
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

// affords says whether batches of n rows, each of which takes the given seconds, can be measured with all codecs in
// most of the time.
func (m *measuring) affords(n int, row float64) bool {
	batches := float64((len(m.codecs) + 2) * measuredBatches)
	return time.Duration(batches*row*float64(n)*float64(time.Second)) < m.limit*4/5
}

// measure returns the costs with one codec.
func (m *measuring) measure(k registry.Trained) (c registry.Costs, err error) {
	c.Batch, c.Lookup = m.batchSeconds, m.lookupSeconds
	if c.Hit, err = m.hits(k, measureRounds); err != nil {
		return c, err
	}
	stored := float64(m.rowBytes) / k.Ratio
	if m.useProbes {
		read, err := m.codedMisses(k)
		c.Miss, c.MissByte = m.floor, read/stored
		return c, err
	}
	read, err := m.misses(min(m.rowBytes, (int(stored)+sector-1)/sector*sector), measureRounds)
	if err != nil {
		return c, err
	}
	if m.shared != nil {
		// Other memory would not show this, as reads from it take less time. Decoding adds at least what it adds when
		// rows are read from device memory.
		if k.Name == registry.None {
			m.plainHit = c.Hit
		}
		c.Miss, c.MissByte = m.floor, (read+max(0, c.Hit-m.plainHit))/stored
		return c, nil
	}
	c.Miss, c.MissByte = m.floor, read/stored
	decoded, err := m.sampleMisses(k)
	if err != nil {
		return c, err
	}
	if decoded > read { // misses wait for the decoder, not for the link
		c.Miss = max(c.Miss, decoded)
	}
	return c, nil
}

// attach copies a codec's metadata to the device.
func (m *measuring) attach(c codec.Codec) (kernels.Codec, func(), error) {
	k, err := kernels.AttachCodec(m.d, c)
	return k, func() { m.d.Free(k.Meta) }, err
}

// check returns an error if a kernel found a row that does not decode, as the measured time would then mean nothing.
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
