package fill

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// chooseResident chooses the targets of the resident tables and where their overflow places lie. It returns the bytes that slots and words take on a
// device, at most, and those that overflow places take of each. They come first: cached tables have what is left of the budget.
func (f *filler) chooseResident() (bytes int64, buddies []int64, err error) {
	buddies = make([]int64, len(f.set.Devices))
	var all []*read.Table
	share, raw, cached := 0.0, 0.0, 0.0 // raw bytes of resident tables without a target, and of cached ones
	for _, t := range f.set.Tables {
		size := float64(t.Tier.Capacity()) * float64(t.Tier.RowBytes())
		switch {
		case t.WantResident == nil:
			cached += size
			continue
		case t.WantResident.Target == 0:
			raw += size
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return 0, buddies, nil
	}
	devices := make([]device.Device, len(f.set.Devices))
	for i, d := range f.set.Devices {
		devices[i] = d.Device
	}
	if cliques := place.FindCliques(devices); len(cliques) > 1 {
		return 0, nil, fmt.Errorf("cache: table %s: devices of a resident table (%d) must all read each other's memory: their sets are %v", all[0].Name, len(devices), cliques)
	}
	others, err := f.cachedLeast()
	if err != nil {
		return 0, nil, err
	}
	budget := slices.Min(f.o.Budgets)
	// First those whose targets are given, so that the others share what is left.
	slices.SortStableFunc(all, func(a, b *read.Table) int {
		return min(b.WantResident.Target, 1) - min(a.WantResident.Target, 1)
	})
	left := float64(budget - others)
	for _, t := range all {
		lengths, room := f.lengthsOf(t), left-float64(bytes)
		layout, err := buddy.NewLayout(buddy.MaxTarget(t.Tier.RowBytes()), t.Tier.RowBytes(), t.Tier.Capacity(), len(devices))
		if err != nil {
			return 0, nil, fmt.Errorf("cache: table %s: %w", t.Name, err)
		}
		local := layout.LocalRows(0)
		beside := slab.TailSlack + max(buddy.WordBytes, layout.WordsBytes(0)) // the slots
		if t.WantResident.Target == 0 {
			if share == 0 { // the first of them
				share = room * raw / (raw + cached)
			}
			room = min(room, share*float64(t.Tier.Capacity())*float64(t.Tier.RowBytes())/raw)
		}
		choice, err := f.targetsOf(t, layout, lengths, room-float64(beside), left-float64(bytes)-float64(beside))
		if err != nil {
			return 0, nil, err
		}
		n := slotsBytes(t, local, choice.Parts) + beside - slab.TailSlack
		if float64(n) > left-float64(bytes) {
			return 0, nil, fmt.Errorf("%w: table %s, resident with slots of %s, takes %d B of each device: GPUMemory (%d B) must be at least %d B",
				place.ErrBudget, t.Name, slotsText(&choice, t.WantResident.MaxTarget), n, budget, others+bytes+n)
		}
		bytes += n
		t.Resident = read.NewResident(layout, choice, t.WantResident.MaxOverflow)
		t.Resident.Shared = f.set.Shared
		for i, n := range lengths {
			t.Resident.Set(int64(i), int(n))
		}
		f.o.Log.Info("table made resident", "table", t.Name, "target", choice.Target, "ranges", len(choice.Parts), "overflow", choice.Overflow, "gain", choice.Gain)
	}
	for i, b := range f.o.Budgets {
		buddies[i] = b - others - bytes
	}
	f.peers = map[*read.Table][]int{}
	for _, t := range all {
		if err := f.choosePeers(t, buddies, cached > 0); err != nil {
			return 0, nil, err
		}
	}
	for i, b := range f.o.Budgets {
		buddies[i] = b - others - bytes - buddies[i]
	}
	return bytes, buddies, nil
}

// choosePeers chooses where the overflow places of a table's rows lie, and takes them from room, the bytes left of each device's budget. beside says
// that cached tables have a use for these.
func (f *filler) choosePeers(t *read.Table, room []int64, beside bool) error {
	want, bytes, most := t.WantResident.Buddy, int64(0), slices.Max(room)
	for _, s := range t.Resident.Spans() {
		bytes += t.Resident.RangeBytes(s.Target, s.To-s.From)
	}
	if want == read.BuddyPeer && len(room) == 1 {
		return fmt.Errorf("cache: table %s: Buddy (%s) needs at least 2 devices, there is 1", t.Name, want)
	}
	if want == read.BuddyHost || bytes == 0 || want == read.BuddyAuto && (beside || len(room) == 1) {
		return nil
	}
	peers, ok := buddy.Peers(bytes, room)
	if !ok && want == read.BuddyPeer {
		return fmt.Errorf("%w: table %s, resident with overflow places on peers, needs %d B for those of each of the %d devices: slots leave at most %d B of a budget",
			place.ErrBudget, t.Name, bytes, len(room), max(0, most))
	}
	f.peers[t] = peers
	return nil
}

// slotsBytes returns the bytes of a device's slots: they have room for the parts, and for all of its rows with the largest target that the table may
// be moved to.
func slotsBytes(t *read.Table, local int64, parts []buddy.Part) int64 {
	n := int64(0)
	for _, p := range parts {
		n += (p.To - p.From) * int64(p.Target)
	}
	most := min(t.WantResident.MaxTarget, buddy.MaxTarget(t.Tier.RowBytes()))
	return max(n, local*int64(most)) + slab.TailSlack
}

// cachedLeast returns the bytes of a device that cached tables need at least, and what the slab and the hashmap take without any.
func (f *filler) cachedLeast() (int64, error) {
	s, err := place.NewSpace([]int64{math.MaxInt64 / 4}, true, f.set.Tables, 0, []int64{0})
	if err != nil {
		return 0, err
	}
	return s.Fixed + s.Smallest + hashmap.LayoutFor(1).Bytes(), nil
}

// targetsOf returns the targets of a table whose slots may take room bytes of each device or, if that is less than they need at least, most bytes.
func (f *filler) targetsOf(t *read.Table, l buddy.Layout, lengths []int32, room, most float64) (buddy.Choice, error) {
	times := f.store.OverflowTimes(slices.Index(f.set.Tables, t), t, l.Devices, l.LocalRows(0))
	if want := t.WantResident.Target; want != 0 {
		if want%buddy.MinTarget != 0 || want < buddy.MinTarget {
			return buddy.Choice{}, fmt.Errorf("cache: table %s: target (%d B) must be a positive multiple of %d", t.Name, want, buddy.MinTarget)
		}
		return buddy.ChooseOne(l, lengths, want, times), nil
	}
	lim := buddy.Limits{Bytes: int64(max(0, room)), Overflow: t.WantResident.MaxOverflow}
	c, ok := buddy.ChooseParts(l, lengths, lim, times)
	if lim.Bytes = c.SlotsBytes(); !ok && float64(lim.Bytes) <= most {
		c, ok = buddy.ChooseParts(l, lengths, lim, times)
	}
	if !ok {
		others, err := f.cachedLeast()
		if err != nil {
			return c, err
		}
		n := c.SlotsBytes() + slab.TailSlack + l.WordsBytes(0)
		return c, fmt.Errorf("%w: table %s, resident with at most %g %% of overflowing rows, needs slots of %s, %d B of each device: with this table alone GPUMemory (%d B) must be at least %d B",
			place.ErrBudget, t.Name, 100*t.WantResident.MaxOverflow, slotsText(&c, 0), n, slices.Min(f.o.Budgets), others+n)
	}
	return c, nil
}

// slotsText names the lengths of slots. The longest has at least `least` bytes.
func slotsText(c *buddy.Choice, least int) string {
	lo, hi := c.Parts[0].Target, least
	for _, p := range c.Parts {
		lo, hi = min(lo, p.Target), max(hi, p.Target)
	}
	if least > 0 || lo == hi {
		return fmt.Sprintf("%d B", hi)
	}
	return fmt.Sprintf("%d to %d B", lo, hi)
}

// lengthsOf reads the stored lengths of a table's rows. Rows that do not read back are taken for raw ones.
func (f *filler) lengthsOf(t *read.Table) []int32 {
	lengths := make([]int32, t.Tier.Rows())
	t.Tier.StoredLengths(f.o.Context, lengths)
	for i, n := range lengths {
		if n < 0 {
			lengths[i] = int32(t.Tier.RowBytes())
		}
	}
	return lengths
}

// residentChunk is how much of a device's slots is put together in host memory at a time, if the host cannot write them.
const residentChunk = 16 << 20

// placeResident writes the rows of the resident tables to their places, and frees their host tiers.
func (f *filler) placeResident() error {
	for _, t := range f.set.Tables {
		if t.Resident == nil {
			continue
		}
		if err := f.placeTable(t); err != nil {
			return fmt.Errorf("cache: table %s: %w", t.Name, err)
		}
		t.Counts.Cached.Store(t.Tier.Rows())
		t.Tier.Vacate()
	}
	return nil
}

func (f *filler) placeTable(t *read.Table) (err error) {
	r, buddies := t.Resident.Rows, read.BuddyPlaces{Peers: f.peers[t], Nodes: f.store.Nodes.Tier}
	spans, at := slices.Clone(t.Resident.Spans()), int64(0)
	for i, s := range spans {
		if spans[i].Range, err = t.Resident.NewRange(f.set, buddies, s.Target, s.From, s.To, at); err != nil {
			return err
		}
		at += (s.To - s.From) * int64(s.Target)
	}
	t.Resident.SetSpans(spans)
	for i := range r.Devices {
		d := f.set.Devices[i].Device
		for _, b := range []struct {
			to    *device.Buffer
			bytes int64
			what  string
		}{
			{&r.Slots[i], max(at+slab.TailSlack, slotsBytes(t, r.LocalRows(0), nil)), "slots of a resident table"},
			{&r.Words[i], max(buddy.WordBytes, r.WordsBytes(i)), "words of a resident table"},
		} {
			if *b.to, err = device.Alloc(d, f.set.Shared, b.bytes, b.what); err != nil {
				return err
			}
			t.Resident.OwnDevice(d, *b.to)
		}
		for _, s := range spans {
			if err := f.writeSpan(t, i, s); err != nil {
				return err
			}
		}
	}
	r.Ranges = kernels.NewRanges(spans[0].Range)
	for _, s := range spans[1:] {
		r.Ranges.Set(s.Number, s.Range)
	}
	if len(spans) > 1 {
		r.Ranges.Use(-1)
	}
	return f.o.Context.Err()
}

// residentOn returns a resident table as a device reads it, nil for tables of other kinds.
func residentOn(t *read.Table, d *read.Device) (*kernels.Resident, error) {
	if t.Resident == nil {
		return nil, nil
	}
	r, image := *t.Resident.Rows, make([]byte, kernels.RangesBytes)
	var err error
	if r.Directory, err = d.Device.Alloc(kernels.RangesBytes, "ranges of a resident table"); err != nil {
		return nil, err
	}
	t.Resident.Own(d.Device, r.Directory)
	r.Ranges.Image(&r, image)
	return &r, device.Upload(d.Device, r.Directory, image)
}

// writeSpan writes the rows of a span that one device has. Rows that are not written yet are raw zeros.
func (f *filler) writeSpan(t *read.Table, i int, s read.Span) error {
	r, d := t.Resident.Rows, f.set.Devices[i].Device
	target, over := int64(s.Target), int64(0)
	s.To = min(s.To, r.LocalRows(i))
	overs := s.Buddy[i].Bytes()
	if s.Buddy[i].Size() > 0 {
		over = int64(buddy.Over(s.Target, r.RowBytes))
	}
	far := over > 0 && overs == nil // through host memory, as slots that are not there
	slotsOf := func(from, to int64) device.Buffer { return r.Slots[i].Slice(s.SlotOf(from), s.SlotOf(to)) }
	wordsOf := func(from, to int64) device.Buffer { return r.Words[i].Slice(from*buddy.WordBytes, to*buddy.WordBytes) }
	oversOf := func(from, to int64) device.Buffer {
		return s.Buddy[i].Slice(s.OverflowOf(from, r.RowBytes), s.OverflowOf(to, r.RowBytes))
	}
	part, there := max(1, min(s.To-s.From, residentChunk/max(target, over))), r.Slots[i].Bytes() != nil
	var slots, words []byte
	if !there { // through host memory
		slots, words = make([]byte, part*target), make([]byte, part*buddy.WordBytes)
	}
	if far {
		overs = make([]byte, part*over)
	}
	var failed atomic.Pointer[error]
	for from := s.From; from < s.To; from += part {
		to := min(from+part, s.To)
		if there {
			slots, words = slotsOf(from, to).Bytes(), wordsOf(from, to).Bytes()
		}
		if over > 0 && !far {
			overs = oversOf(from, to).Bytes()
		}
		host.Workers(f.o.Workers).For(int(to-from), 4096, func(a, b int) {
			if f.o.Context.Err() != nil {
				return
			}
			for n := int64(a); n < int64(b); n++ {
				if err := writeRow(t, i, from+n, s, slots[n*target:][:target], overs[n*over:][:over], words[n*buddy.WordBytes:]); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
		if err := failed.Load(); err != nil {
			return *err
		}
		n := to - from
		if far {
			if err := device.Upload(f.set.Devices[s.Writer(i)].Device, oversOf(from, to), overs[:n*over]); err != nil {
				return err
			}
		}
		if there {
			continue
		}
		if err := errors.Join(
			device.Upload(d, slotsOf(from, to), slots[:n*target]),
			device.Upload(d, wordsOf(from, to), words[:n*buddy.WordBytes]),
		); err != nil {
			return err
		}
	}
	return nil
}

// writeRow writes the row with a local number on device i to its slot, its overflow place and its word.
func writeRow(t *read.Table, i int, local int64, s read.Span, slot, overflow, word []byte) error {
	row, at := t.Resident.Rows.Row(i, local), (*uint64)(unsafe.Pointer(unsafe.SliceData(word)))
	if row >= t.Tier.Rows() {
		clear(slot)
		clear(overflow)
		*at = uint64(buddy.Raw.In(s.Number))
		return nil
	}
	stored, compressed, err := t.Tier.Stored(row)
	if err != nil {
		return err
	}
	if n := copy(slot, stored); n < len(stored) {
		copy(overflow, stored[n:])
	}
	*at = uint64(buddy.Home(len(stored), compressed).In(s.Number))
	return nil
}
