package fill

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/transfer"
)

// ranked is a policy with a fixed ranking.
type ranked []uint64

func (r ranked) Name() string                  { return "ranked" }
func (r ranked) Start(admission.Problem) error { return nil }
func (r ranked) Observe(int, []int64)          {}
func (r ranked) Rank() iter.Seq[uint64]        { return slices.Values(r) }
func (r ranked) Resize(int64)                  {}
func (r ranked) Close()                        {}

// filling are the tables and options of caches that are filled in several ways.
type filling struct {
	tiers    []*transfer.Tier
	devices  int
	budget   int64
	ranking  ranked
	restored []uint64
	cold     bool
	fixed    bool
}

// outcome is all that Fill leaves behind.
type outcome struct {
	err                string
	restored           []uint64
	differing          []change.Entry
	payload            []int64
	used               []int64
	extents            [][][2]int64
	maps, slabs        [][]byte
	shared             []place.SharedSlot // in the order in which they lie in place.SharedSlots
	rejected, oversize []read.Bitset
	cached             []int64
}

// fill fills a cache.
func (s *filling) fill(t *testing.T, oneByOne bool) (o outcome) {
	set := read.NewSet(host.Open(s.devices, 2), read.Sampling{}, read.DefaultTuning())
	var tables []*read.Table
	for i, tier := range s.tiers {
		tables = append(tables, &read.Table{Name: fmt.Sprint("table ", i), Tier: tier})
	}
	set.SetTables(tables)
	log := slog.New(slog.DiscardHandler)
	store := &place.Store{Set: set, Hot: place.NewHot(place.HotOptions{}, s.devices)}
	store.Nodes, _ = place.ChooseNodes("/", set.Devices, []int{place.AnyNode}, log)
	filled, err := Fill(store, Options{
		Learner: learn.New(learn.Options{Policy: s.ranking, Set: set}), Log: log, Budgets: slices.Repeat([]int64{s.budget}, s.devices), OneBudget: true,
		Training: func(func(int, []int64) bool) {}, Cold: s.cold, Fixed: s.fixed, Restored: s.restored, oneByOne: oneByOne,
	})
	defer func() {
		if store.Overlay != nil {
			set.Devices[0].Device.Free(store.Overlay.Mem)
		}
		for _, d := range set.Devices {
			d.Device.Free(d.Slab)
			d.Device.Free(d.Map)
		}
	}()
	if err != nil {
		return outcome{err: err.Error()}
	}
	o = outcome{restored: filled.Restored, differing: filled.Differing, payload: store.Space.Load().Payload}
	for i, d := range set.Devices {
		slots := store.Slabs[i].Slots
		o.used = append(o.used, slots.Used())
		var extents [][2]int64
		for at, bytes := range slots.Extents() {
			extents = append(extents, [2]int64{at, bytes})
		}
		slices.SortFunc(extents, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		o.extents = append(o.extents, extents)
		o.maps, o.slabs = append(o.maps, bytes.Clone(d.Map.Bytes())), append(o.slabs, bytes.Clone(d.Slab.Bytes()))
	}
	for l := range store.SharedSlots.Words {
		g, words, _ := store.SharedSlots.Of(l)
		o.shared = append(o.shared, place.SharedSlot{Group: g, Location: l, Words: words})
	}
	for _, table := range tables {
		o.rejected, o.oversize, o.cached = append(o.rejected, table.Rejected), append(o.oversize, table.Oversize), append(o.cached, table.Counts.Cached.Load())
	}
	return o
}

// differs names what differs from another outcome, "" if nothing does.
func (o *outcome) differs(p *outcome) string {
	same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	sets := func(a, b []read.Bitset) bool {
		return slices.EqualFunc(a, b, func(a, b read.Bitset) bool { return slices.Equal(a, b) })
	}
	switch {
	case o.err != p.err:
		return fmt.Sprintf("error %q, want %q", o.err, p.err)
	case !slices.Equal(o.restored, p.restored):
		return "restored keys"
	case !slices.EqualFunc(o.differing, p.differing, func(a, b change.Entry) bool { return a.Key == b.Key && a.Locations.Equal(b.Locations) }):
		return "differing entries"
	case !slices.Equal(o.payload, p.payload):
		return "payload"
	case !slices.Equal(o.used, p.used), !slices.EqualFunc(o.extents, p.extents, slices.Equal):
		return "allocated slots"
	case !same(o.maps, p.maps):
		return "hashmaps"
	case !same(o.slabs, p.slabs):
		return "slabs"
	case !slices.Equal(o.shared, p.shared):
		return "shared slots"
	case !sets(o.rejected, p.rejected), !sets(o.oversize, p.oversize):
		return "rejected or oversize rows"
	case !slices.Equal(o.cached, p.cached):
		return "counts of cached rows"
	}
	return ""
}

// randomTable returns the host tier of a table, some rows of which are damaged if damage is set.
func randomTable(t *testing.T, r *rand.Rand, rows int, damage bool) *transfer.Tier {
	rowBytes := 128 + 16*r.IntN(3)
	contents := []int{1, 3, 1 + rows/1000, 1 + rows/10, 1 + rows/2, rows}[r.IntN(6)]
	data := make([]byte, rows*rowBytes)
	for row := range rows {
		content := uint64(r.IntN(contents))
		if contents == rows {
			content = uint64(row)
		}
		of := rand.New(rand.NewPCG(content, 5))
		length, mask := 16+of.IntN(rowBytes-16), uint32(15)
		if content%4 == 1 { // is not compressed, so damaged rows can be too long
			length, mask = rowBytes, 255
		}
		for i := range length {
			data[row*rowBytes+i] = byte(of.Uint32() & mask)
		}
	}
	codec, mode := []string{"none", "ibp4"}[r.IntN(2)], []transfer.Mode{transfer.InPlace, transfer.Packed}[r.IntN(2)]
	if damage {
		codec, mode = "sparse", transfer.InPlace
	}
	tier, err := transfer.Load(host.Open(1, 2)[0], transfer.SourceOf(data, rowBytes), transfer.Options{Codec: codec, DType: dtype.Uint8, Mode: mode, EqualRows: true, Capacity: int64(rows + r.IntN(2)*1000)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tier.Close() })
	if damage {
		damaged := 0
		for range 1000 {
			row := r.Int64N(int64(rows))
			stored, compressed, err := tier.Stored(row)
			if err != nil || !compressed {
				continue
			}
			for i := range stored {
				stored[i] = 0xff
			}
			if _, _, err := tier.Stored(row); err == nil {
				t.Errorf("row %d of %d reads back", row, rows)
			}
			if damaged++; damaged == 3 {
				break
			}
		}
		if damaged == 0 {
			t.Error("no row is damaged")
		}
	}
	return tier
}

// TestFill_AllProcessors: a cache that is filled on all processors is the same as one whose rows are chosen and admitted one by one.
func TestFill_AllProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	seeds := 30
	if race.Enabled {
		seeds = 9
	}
	full, errors, shared := 0, 0, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &filling{devices: 1, cold: r.IntN(6) == 0, fixed: r.IntN(2) == 0}
		if r.IntN(6) == 0 {
			s.devices = 2
		}
		var all []uint64
		bytes := int64(0)
		tables, rows := 1+r.IntN(3), []int{1 + r.IntN(100), 1000 + r.IntN(9000), partKeys + r.IntN(partKeys/2)}[seed%3]
		for i := range tables {
			tier := randomTable(t, r, 1+rows/(1+i), seed%5 == 2)
			s.tiers = append(s.tiers, tier)
			for row := range tier.Rows() {
				all = append(all, hashmap.Key(i, row))
			}
			bytes += tier.Totals().SlotBytes + 20*tier.Rows()
		}
		random := func(n int) (keys []uint64) {
			for range n {
				keys = append(keys, all[r.IntN(len(all))])
			}
			return keys
		}
		s.budget = int64(float64(bytes)*[]float64{0.02, 0.3, 0.7, 1, 1.3}[r.IntN(5)])/int64(s.devices) + 4096
		switch r.IntN(4) {
		case 0: // no ranking
		case 1: // with rows twice, and rows of no table and behind the last one
			s.ranking = append(random(len(all)), hashmap.Key(tables, 0), hashmap.Key(0, 1<<40))
		default:
			r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
			s.ranking = slices.Clone(all[:r.IntN(len(all)+1)])
		}
		if s.cold || r.IntN(3) == 0 {
			s.restored = random(r.IntN(1 + len(all)))
		}
		if seed%10 == 2 { // all rows have room, and one of the first part is damaged
			s.budget, s.ranking, s.restored, s.cold = 2*bytes+8192, nil, nil, false
		}
		runtime.GOMAXPROCS(1)
		want := s.fill(t, true)
		for _, processors := range []int{1, 4} {
			runtime.GOMAXPROCS(processors)
			got := s.fill(t, false)
			if what := got.differs(&want); what != "" {
				t.Errorf("seed %d, %d processors, %d rows, %d devices: %s", seed, processors, len(all), s.devices, what)
			}
		}
		cached := int64(0)
		for _, n := range want.cached {
			cached += n
		}
		switch {
		case want.err != "":
			errors++
		case !s.cold && cached < int64(len(all)):
			full++
		}
		shared += min(1, len(want.shared))
	}
	t.Logf("of %d caches %d are full, %d have shared slots, %d are errors", seeds, full, shared, errors)
	if full < seeds/4 || seeds-full-errors < seeds/4 || errors < seeds/8 || shared < seeds/4 {
		t.Errorf("of %d caches %d are full, %d have shared slots, %d are errors", seeds, full, shared, errors)
	}
}

// TestLower: the least of the numbers stays, whatever their order.
func TestLower(t *testing.T) {
	n := uint32(0)
	for _, step := range [][2]uint32{{7, 7}, {3, 3}, {5, 3}, {2, 2}} {
		if lower(&n, step[0]); n != step[1] {
			t.Errorf("%d, want %d", n, step[1])
		}
	}
}

// TestTally: many groups of any sizes are counted by many goroutines.
func TestTally(t *testing.T) {
	const groups, parts, keys = 300, 8, 10_000
	counters, want := make([]uint32, groups), make([]uint32, groups)
	host.Workers(4).For(parts, 1, func(part, _ int) {
		var count tally
		for k := range keys {
			count.add(counters, uint32(k*(part+1)%groups))
		}
		count.flush(counters)
	})
	for part := range parts {
		for k := range keys {
			want[k*(part+1)%groups]++
		}
	}
	if !slices.Equal(counters, want) {
		t.Errorf("counts %v, want %v", counters, want)
	}
}
