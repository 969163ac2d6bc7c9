// Package fill fills a cache before it serves: it divides the devices' budgets, trains the admission policy on the training batches,
// chooses rows by the policy's ranking, writes them to the slabs and builds the hashmaps.
package fill

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// Options say what a cache is filled with.
type Options struct {
	// Context, if not nil, ends Fill early, with its error.
	Context context.Context
	Learner *learn.Learner
	Log     *slog.Logger
	// Budgets are the bytes of each device. OneBudget says that they were given as one.
	Budgets   []int64
	OneBudget bool
	Workers   int   // goroutines that write resident tables; 0: one a processor
	Overlay   int64 // bytes of the overlay, at least
	Policy    int64 // most bytes of host memory that the policy may take; 0: any
	Training  admission.Training
	Cold      bool // admit nothing but Restored
	Inclusive bool // Partial host tiers are to have rows that slabs have, too
	Fixed     bool // what is admitted now stays: the hashmap is as large as that needs
	// Taken says that the slabs may still be read by processes that know them from an earlier owner: nothing is admitted. Entries is for how many rows the hashmap must
	// have room then: those of the earlier owner's overlay.
	Taken   bool
	Entries int64
	// Restored are keys that are admitted before any others, and that the policy observes once.
	Restored []uint64

	oneByOne bool // for tests: keys are chosen and admitted one by one
}

// Filled is what was admitted.
type Filled struct {
	// Differing are the rows for which the devices' maps have different locations.
	Differing []change.Entry
	// Restored are the keys of Options.Restored for which there was room by bytes. Slabs or maps may have had no room for some.
	Restored []uint64
}

// filler is one run of Fill.
type filler struct {
	o        Options
	set      *read.Set
	store    *place.Store
	restored int // keys chosen that were restored
	// chosen are rows of Partial host tiers that are to be admitted to slabs, hosts those that are to be in the main regions of the host tiers, and rings those
	// that are to be in their rings, all best first. room and ringRoom are the bytes of each that are not chosen for yet.
	chosen, hosts, rings []uint64
	room, ringRoom       []int64
	unread               []unread // by table

	peers map[*read.Table][]int // by device: which one has the overflow places of its rows of a resident table; none: host memory
	fits  []bool                // whether a Partial host tier has room for all rows of its table
	// lengths are the stored lengths of the rows of each table, while Fill runs; -1 for a row that does not read back. Policies and Fill ask
	// for them in any order: read from the rows themselves, each would be a miss of the processor's caches.
	lengths [][]int32
	// groups are, while Fill runs, the numbers of the groups of equal rows in each table, from 1 on in all tables together, 0 for rows without; nil for tables
	// without. groupRows says how many rows each group has, from element 1 on, and firstGroup the first number of each table. Fill asks for them as for lengths.
	groups                [][]uint32
	groupRows, firstGroup []uint32
	// locks guard lengths and groups against policies that go on in the background when Fill returns: one for each range of hashes, because policies rank
	// ranges of hashes at the same time.
	locks [lengthLocks]lengthLock
}

// observeRows is how many rows of a training batch the policy observes at a time.
const observeRows = 1 << 18

// Fill fills the slabs and hashmaps of store's devices. It sets the fields of store that are not set. What they hold is to be freed
// after an error too.
func Fill(store *place.Store, o Options) (*Filled, error) {
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Taken {
		o.Cold, o.Fixed, o.Restored = true, false, nil
	}
	f := &filler{o: o, set: store.Set, store: store, unread: make([]unread, len(store.Set.Tables))}
	for table, t := range f.set.Tables {
		f.unread[table].name = t.Name
	}
	resident, buddies, err := f.chooseResident()
	if err != nil {
		return nil, err
	}
	space, err := place.NewSpace(o.Budgets, o.OneBudget, f.set.Tables, resident, buddies)
	if err != nil {
		return nil, err
	}
	if err := f.placeResident(); err != nil {
		return nil, err
	}
	store.Space.Store(space)
	if !f.placesNone() {
		defer f.measure()()
	} else {
		f.groupRows = []uint32{0}
	}
	if err := o.Context.Err(); err != nil {
		return nil, err
	}
	if err := f.train(); err != nil {
		return nil, err
	}
	f.place()
	rows, partial := int64(0), int64(0)
	for _, t := range f.set.Tables {
		now, _ := t.Cacheable()
		if rows += now; t.Tier.Partial() {
			partial += now
		}
	}
	keys, memory := numa.Make[uint64](rows) // takes pages only as far as it is written
	defer memory.Free()
	for _, of := range []*[]uint64{&f.chosen, &f.hosts, &f.rings} { // memory that the Go heap would keep
		all, memory := numa.Make[uint64](partial)
		defer memory.Free()
		*of = all[:0]
	}
	keys, err = f.choose(keys[:0])
	if err = cmp.Or(err, f.o.Context.Err()); err != nil {
		return nil, err
	}
	if err := f.fillHosts(); err != nil {
		return nil, err
	}
	if err := f.allocate(); err != nil {
		return nil, err
	}
	differing, err := f.admit(keys)
	return &Filled{Differing: differing, Restored: slices.Clone(keys[:f.restored])}, err
}

// placesNone says that no row is placed, and that none can be too long for a slab: then Fill need not know how long rows are.
func (f *filler) placesNone() bool {
	if !f.o.Taken {
		return false
	}
	for i := range f.o.Budgets {
		if f.store.Space.Load().PayloadFor(i, 1) < int64(f.store.LongestSlot()) {
			return false
		}
	}
	return !slices.ContainsFunc(f.set.Tables, func(t *read.Table) bool { return t.Tier.Partial() })
}

// place finds out which devices read each other's slabs, and which rows are to be copied.
func (f *filler) place() {
	devices := make([]device.Device, len(f.set.Devices))
	for i, d := range f.set.Devices {
		devices[i] = d.Device
	}
	cliques := place.FindCliques(devices)
	_, entries := f.store.Space.Load().Estimate(f.set.Tables) // the map takes its share of small budgets
	payload := f.store.Space.Load().Payloads(entries)
	f.store.Topology.Store(place.NewTopology(cliques, payload))
	if len(cliques) > 1 {
		for _, members := range cliques {
			f.o.Log.Warn("devices cannot all read each other's memory: each set has a cache of its own", "set", members, "of", len(devices))
		}
	}
	if len(devices) == 1 {
		return
	}
	if !f.o.Cold {
		f.o.Learner.Call(func(policy admission.Policy) { f.store.Hot.Decide(f.store, policy, payload) })
	}
	capacity := f.store.Capacity(payload)
	if f.store.Hot.Bytes.Load() > 0 {
		f.o.Learner.Call(func(p admission.Policy) { p.Resize(capacity) })
	}
}

// allocate takes the budget from every device.
func (f *filler) allocate() (err error) {
	s := f.store.Space.Load()
	f.store.Overlay, err = place.OpenOverlay(f.set, f.store.Nodes.Tier, f.o.Overlay)
	if err != nil {
		return err
	}
	for i, d := range f.set.Devices {
		front := f.store.Overlay.In(i)
		s.Payload[i] = min(s.Payload[i], slab.MaxBytes-slab.TailSlack-front)
		if d.Slab, err = f.set.Alloc(d.Device, read.SlabRole(i), true, front+s.Payload[i]+slab.TailSlack, "slab"); err != nil {
			return err
		}
		if d.Map, err = f.set.Alloc(d.Device, read.MapRole(i), false, s.Layout.Bytes(), "hashmap"); err != nil {
			return err
		}
		d.Layout = s.Layout
		slots := slab.NewAllocator(front, s.Payload[i])
		f.store.Slabs = append(f.store.Slabs, &place.Slab{Slots: slots, Limit: slots.Capacity()})
		for i, t := range f.set.Tables {
			rows, codec, err := t.Tier.Attach(d.Device)
			if err != nil {
				return err
			}
			resident, err := residentOn(t, d)
			if err != nil {
				return err
			}
			d.SetTable(i, &read.TableView{Rows: rows, Codec: codec, Resident: resident})
		}
	}
	f.store.PublishSlabs()
	return nil
}

// train starts the policy and lets it observe the training batches.
func (f *filler) train() error {
	p, s := admission.Problem{Costs: f.store.Costs, Memory: f.o.Policy}, f.store.Space.Load()
	p.Capacity, s.Entries = s.Estimate(f.set.Tables)
	p.MapBytes = int(float64(len(f.set.Devices)) * hashmap.EntryBytes)
	if f.o.Fixed && !slices.ContainsFunc(f.set.Tables, func(t *read.Table) bool { return t.Tier.Partial() }) {
		s.Entries = 0
	}
	s.Entries = max(s.Entries, f.o.Entries)
	p.Capacity += place.HostCapacity(f.set.Tables)
	for _, t := range f.set.Tables {
		_, most := t.Cacheable()
		p.Rows = append(p.Rows, most)
	}
	// A row that does not read back is reported when it is admitted; here it counts as raw.
	lockOf := func(key uint64) *lengthLock { return &f.locks[hashmap.Hash(key)/(math.MaxUint64/lengthLocks+1)] }
	stored := func(key uint64) int {
		table, row := hashmap.SplitKey(key)
		t := f.set.Tables[table].Tier
		if t.Codec() == nil {
			return t.RowBytes()
		}
		lock := lockOf(key)
		lock.RLock()
		defer lock.RUnlock()
		if f.lengths != nil {
			if n := f.stored(key); n >= 0 {
				return n
			}
			return t.RowBytes()
		}
		n, err := t.StoredBytes(row)
		if err != nil {
			return t.RowBytes()
		}
		return n
	}
	p.StoredBytes = stored
	prices := s.Prices(f.set.Tables)
	// equal returns how many rows a row's group has, and whether it has one.
	equal := func(key uint64) (rows int64, shared bool) {
		if table, _ := hashmap.SplitKey(key); !f.set.Tables[table].Tier.Shares() {
			return 0, false
		}
		lock := lockOf(key)
		lock.RLock()
		defer lock.RUnlock()
		if f.groups != nil {
			group := f.group(key)
			return int64(f.groupRows[group]), group != 0
		}
		_, rows, shared = f.store.GroupOf(key)
		return rows, shared
	}
	p.SlotBytes = func(key uint64) int {
		n := slab.SlotBytes(stored(key))
		if rows, shared := equal(key); shared { // equal rows, which are one slot's, pay for it together
			table, _ := hashmap.SplitKey(key)
			n = int(prices[table].Of(rows, int64(n)))
		}
		return n
	}
	f.o.Learner.SetSlotBytes(p.SlotBytes)
	if err := f.o.Learner.Start(p); err != nil {
		return err
	}
	batch := 0
	for table, rows := range f.o.Training {
		if table < 0 || table >= len(f.set.Tables) {
			return fmt.Errorf("cache: training batch %d: table (%d) must be 0 to %d", batch, table, len(f.set.Tables)-1)
		}
		if err := read.CheckRows(f.set.Tables[table], rows); err != nil {
			return fmt.Errorf("cache: training batch %d: %w", batch, err)
		}
		if p.Rows[table] == 0 { // slabs hold none of its rows
			continue
		}
		for part := range slices.Chunk(rows, observeRows) {
			if err := f.o.Context.Err(); err != nil {
				return err
			}
			if err := f.o.Learner.Call(func(policy admission.Policy) { policy.Observe(table, part) }); err != nil {
				return err
			}
		}
		f.o.Learner.Observed.Add(int64(len(rows)))
		batch++
	}
	return nil
}
