package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// changes is the writing side of a cache that serves. Whoever changes what batches read holds its lock, for a bounded piece
// of work at a time and never while waiting for batches; batches never take it.
//
// What is withdrawn from the maps is retired: put into the open group. One goroutine, which lives as long as there is
// something to do, closes the open group, waits until every batch that had begun by then has ended, and then does what was
// waiting for that.
type changes struct {
	cache *Cache
	life  context.Context // ends when the cache closes
	stop  context.CancelFunc
	tasks sync.WaitGroup // everything that runs until then

	mu struct {
		sync.Mutex
		// index has what the maps of the devices hold, the first of its places for a row that has several: copies has them all.
		index *hashmap.Map
		log   storeLog // stores that the devices' maps have not seen yet
		sides []*side  // one a device
		born  []uint32 // for each map slot, when its row was admitted
		// bornSum is the sum of born over the admitted rows.
		bornSum int64

		fresh     map[uint64]*fresh   // rows whose newest version is not in the host tier yet
		admitting map[uint64]struct{} // rows on their way to a slab; whoever changes one takes it out
		erased    queue               // keys whose map slots only say why they have no location, oldest first
		rejected  []map[int64]uint64  // for each table, words of the rejected rows' bits that the devices do not have yet

		open     *retired
		dealing  *retired      // waits for its epoch, or is being dealt with; nil: none
		running  bool          // the goroutine
		progress chan struct{} // closed, and replaced, after each group
		err      error         // a change failed half way: nothing can be changed any more
		by       *cause        // on whose behalf rows are withdrawn, nil if nobody knows
		at       time.Time     // when all of these are withdrawn; the zero value: now
	}
	copies    copySets
	started   time.Time
	counts    changeCounts
	evictions evictions
}

// retired is what waits for the batches that may still read it.
type retired struct {
	slots    []slot
	overlay  []slot
	mapSlots []int64
	rows     []*fresh
	buffers  []retiredBuffer
	done     chan struct{} // closed once it is dealt with
}

func (r *retired) empty() bool {
	return len(r.slots)+len(r.overlay)+len(r.mapSlots)+len(r.rows)+len(r.buffers) == 0
}

// slot is a place in a slab or in the overlay.
type slot struct {
	device int
	offset int64
	bytes  int
	aside  bool // counted in deviceState.aside
	waited bool // in the overlay: an epoch has passed since batches found it
}

type retiredBuffer struct {
	device device.Device
	buffer device.Buffer
}

// startChanges makes the writing side, once maps and slabs are filled. several are the rows whose places not every map names
// alike.
func (c *Cache) startChanges(several []entry) error {
	ch := &c.changes
	ch.cache, ch.started = c, time.Now()
	ch.life, ch.stop = context.WithCancel(context.Background())
	m := &ch.mu
	m.fresh, m.admitting, m.open, m.progress = map[uint64]*fresh{}, map[uint64]struct{}{}, newRetired(), make(chan struct{})
	for range c.tables {
		m.rejected = append(m.rejected, map[int64]uint64{})
	}
	layout := c.devices[0].layout
	image := c.devices[0].hashes.Bytes()
	mirrored := 0 // devices whose map is the index itself
	if image == nil || len(c.devices) > 1 {
		image = alignedBytes(layout.Bytes())
		if err := device.Download(c.devices[0].device, image, c.devices[0].hashes); err != nil {
			return err
		}
	} else {
		mirrored = 1
	}
	m.index = hashmap.View(image, layout)
	for _, e := range several {
		if slot, ok := m.index.Slot(e.key); ok { // else there was no room in the map
			m.index.Insert(e.key, e.places.first)
			ch.copies.put(slot, layout.Slots(), len(c.devices), e.places)
		}
	}
	m.born = make([]uint32, layout.Slots())
	if mirrored < len(c.devices) {
		m.index.OnStore(m.log.add)
	}
	for i, d := range c.devices {
		s, err := newSide(d, i >= mirrored)
		if err != nil {
			return err
		}
		m.sides = append(m.sides, s)
	}
	return nil
}

func newRetired() *retired { return &retired{done: make(chan struct{})} }

// alignedBytes returns memory aligned to 8 bytes; n is a multiple of 8.
func alignedBytes(n int64) []byte { return AsBytes(make([]uint64, n/8)) }

// end ends what runs in the background. No call may be inside the cache.
func (ch *changes) end() {
	if ch.stop != nil {
		ch.stop()
		ch.tasks.Wait()
	}
}

// free frees memory. REQUIRES: no batch runs, and end was called.
func (ch *changes) free() {
	for _, s := range ch.mu.sides {
		s.close()
	}
	ch.mu.sides = nil
	if ch.mu.open != nil {
		for _, b := range ch.mu.open.buffers {
			b.device.Free(b.buffer)
		}
		ch.mu.open.buffers = nil
	}
}

// now is the time since the start in tenths of a second, 13 years' worth.
func (ch *changes) now() uint32 { return uint32(time.Since(ch.started) / (100 * time.Millisecond)) }

// admittedLocked counts a row whose location has been published. REQUIRES: ch.mu is locked.
func (ch *changes) admittedLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	ch.cache.tables[table].counts.cached.Add(1)
	if s, ok := ch.mu.index.Slot(key); ok {
		ch.mu.born[s] = ch.now()
		ch.mu.bornSum += int64(ch.mu.born[s])
	}
}

// withdrawnLocked counts and remembers a row that is admitted no longer; its key is still in the index. REQUIRES: ch.mu is locked.
func (ch *changes) withdrawnLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	ch.cache.tables[table].counts.cached.Add(-1)
	if s, ok := ch.mu.index.Slot(key); ok {
		ch.mu.bornSum -= int64(ch.mu.born[s])
		age := time.Duration(ch.now()-ch.mu.born[s]) * (100 * time.Millisecond)
		at := ch.mu.at
		if at.IsZero() {
			at = time.Now()
		}
		ch.evictions.add(withdrawal{key, at, age, ch.mu.by})
	}
}

// behalfLocked has what is withdrawn from now on remembered as withdrawn by someone at this moment, until it is called with nil or
// the lock is given up. REQUIRES: ch.mu is locked.
func (ch *changes) behalfLocked(by *cause) {
	if ch.mu.by, ch.mu.at = by, (time.Time{}); by != nil {
		ch.mu.at = time.Now()
	}
}

// placesOf returns where a row lies. It may be called beside changes; then what it returns may have changed already.
func (ch *changes) placesOf(key uint64) places { return ch.placesAt(key, ch.mu.index.Find(key)) }

// placesAt is placesOf for a key whose word in the index is l.
func (ch *changes) placesAt(key uint64, l slab.Location) places {
	if l.Valid() && ch.copies.rows.Load() > 0 {
		if slot, ok := ch.mu.index.Slot(key); ok {
			return ch.copies.get(slot, l)
		}
	}
	return places{first: l}
}

// insertLocked publishes where a row lies, or returns false where the maps have no slot for it. REQUIRES: ch.mu is locked.
func (ch *changes) insertLocked(key uint64, p places) bool {
	ch.mu.log.operation()
	ch.mu.log.views = ch.cache.views(p)
	defer func() { ch.mu.log.views = nil }()
	if !ch.mu.index.Insert(key, p.first) {
		return false
	}
	ch.noteCopiesLocked(key, p)
	return true
}

// noteCopiesLocked notes the places of a row whose first is in the index, or that has none. REQUIRES: ch.mu is locked.
func (ch *changes) noteCopiesLocked(key uint64, p places) {
	if len(p.more) == 0 && ch.copies.rows.Load() == 0 {
		return
	}
	if slot, ok := ch.mu.index.Slot(key); ok {
		ch.copies.put(slot, ch.mu.index.Layout().Slots(), len(ch.cache.devices), p)
	}
}

// eraseLocked withdraws a key's location, and remembers that its map slot says why. REQUIRES: ch.mu is locked.
func (ch *changes) eraseLocked(key uint64, why slab.Reason) {
	ch.noteCopiesLocked(key, nowhere())
	ch.mu.log.operation()
	ch.mu.index.Erase(key, why)
	if why == slab.Cold || why == slab.Rejected || why == slab.Oversize { // the row bits say so too
		ch.deleteLocked(key)
		return
	}
	ch.mu.erased.push(key)
	// Reasons must not crowd out locations: what is forgotten counts as rejected.
	for int64(ch.mu.erased.len()) > ch.mu.index.Layout().Slots()/reasonShare {
		if key := ch.mu.erased.pop(); ch.deleteLocked(key) {
			ch.rejectLocked(key)
		}
	}
}

// reasonShare is the share of map slots, one in so many, that may say why a row was withdrawn.
const reasonShare = 16

// rejectLocked notes a row as rejected. REQUIRES: ch.mu is locked.
func (ch *changes) rejectLocked(key uint64) {
	table, row := hashmap.SplitKey(key)
	if t := ch.cache.tables[table]; !t.rejected.has(row) {
		t.rejected.addShared(row)
		ch.mu.rejected[table][row>>6] = t.rejected[row>>6]
	}
}

// deleteLocked takes a key without a location out of the maps, so that its slot can be another's after an epoch.
// REQUIRES: ch.mu is locked.
func (ch *changes) deleteLocked(key uint64) bool {
	ch.mu.log.operation()
	s, ok := ch.mu.index.Delete(key)
	if ok {
		ch.mu.open.mapSlots = append(ch.mu.open.mapSlots, s)
	}
	return ok
}

// retireLocked gives slots back once no batch can read them. REQUIRES: ch.mu is locked.
func (ch *changes) retireLocked(key uint64, p places) {
	for l := range p.all() {
		bytes := ch.cache.slotBytes(key, l)
		ch.mu.open.slots = append(ch.mu.open.slots, slot{device: l.Slab(), offset: l.Offset(), bytes: bytes})
	}
}

// slotBytes returns what a row takes at a place in a slab.
func (c *Cache) slotBytes(key uint64, l slab.Location) int {
	table, _ := hashmap.SplitKey(key)
	return slab.SlotBytes(l.Stored(c.tables[table].tier.RowBytes()))
}

// evictLocked withdraws an admitted row. REQUIRES: ch.mu is locked; the row is not fresh.
func (ch *changes) evictLocked(key uint64, p places, why slab.Reason) {
	ch.withdrawnLocked(key)
	ch.eraseLocked(key, why)
	ch.retireLocked(key, p)
}

// publishLocked lets every device see the maps as the index has them: batches that begin after it returns do. An error is
// final. REQUIRES: ch.mu is locked.
func (ch *changes) publishLocked() error {
	if ch.mu.err != nil {
		return ch.mu.err
	}
	var errs []error
	for w := range ch.mu.log.waves {
		errs = append(errs, ch.onSidesLocked(func(i int, s *side) error {
			if !s.hasMap {
				return nil
			}
			return s.store(ch.cache.devices[i].hashes, ch.mu.log.wave(w, i))
		}))
	}
	ch.mu.log.clear()
	for table, changed := range ch.mu.rejected {
		if len(changed) == 0 {
			continue
		}
		words := make([]word, 0, len(changed))
		for index, value := range changed {
			words = append(words, word{uint64(index), value})
		}
		clear(changed)
		errs = append(errs, ch.onSidesLocked(func(i int, s *side) error {
			return s.store(ch.cache.devices[i].table(table).rejected, words)
		}))
	}
	errs = append(errs, ch.onSidesLocked(func(_ int, s *side) error { return s.finish() }))
	if !ch.mu.open.empty() {
		ch.workLocked()
	}
	return ch.failLocked(errors.Join(errs...))
}

// onSidesLocked does something on every device that is not lost. Errors of one that is lost meanwhile do not count, as long as
// there are others. REQUIRES: ch.mu is locked.
func (ch *changes) onSidesLocked(f func(i int, s *side) error) error {
	var errs []error
	for i, d := range ch.cache.devices {
		if d.isLost() {
			continue
		}
		if err := f(i, ch.mu.sides[i]); err != nil && !ch.cache.survives(d) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// putLocked has a row written to a slot, unless the device is lost. REQUIRES: ch.mu is locked.
func (ch *changes) putLocked(l slab.Location, stored []byte) error {
	d := ch.cache.devices[l.Slab()]
	if d.isLost() {
		return nil
	}
	if err := ch.mu.sides[d.index].put(l.Offset(), stored); err != nil && !ch.cache.survives(d) {
		return err
	}
	return nil
}

// failLocked notes an error after which the devices may hold anything. REQUIRES: ch.mu is locked.
func (ch *changes) failLocked(err error) error {
	if err != nil && ch.mu.err == nil {
		ch.mu.err = fmt.Errorf("cache: changing what is cached: %w", err)
	}
	return ch.mu.err
}

// workLocked has the open group dealt with. REQUIRES: ch.mu is locked.
func (ch *changes) workLocked() {
	if ch.mu.running || ch.life.Err() != nil {
		return
	}
	ch.mu.running = true
	ch.tasks.Go(ch.work)
}

// work deals with one group after the other until there is none.
func (ch *changes) work() {
	pprof.SetGoroutineLabels(ch.cache.labels(ch.life, "retire")) // not those of whoever retired something
	for {
		ch.mu.Lock()
		group := ch.mu.open
		if group.empty() || ch.mu.err != nil || ch.life.Err() != nil {
			ch.mu.running = false
			if ch.mu.err != nil { // nobody will deal with the group
				close(group.done)
				ch.mu.open = &retired{buffers: group.buffers, done: make(chan struct{})}
			}
			ch.advanceLocked()
			ch.mu.Unlock()
			return
		}
		ch.mu.open, ch.mu.dealing = newRetired(), group
		ch.mu.Unlock()
		err := ch.cache.waitEpoch(ch.life)
		ch.mu.Lock()
		if err == nil {
			for len(group.slots) > changedRows { // a cycle's may be a million
				ch.freeSlotsLocked(group.slots[:changedRows])
				group.slots = group.slots[changedRows:]
				ch.mu.Unlock()
				ch.mu.Lock()
			}
			ch.dealLocked(group)
		} else {
			ch.mu.open.buffers = append(ch.mu.open.buffers, group.buffers...)
		}
		ch.mu.dealing = nil
		close(group.done)
		ch.advanceLocked()
		ch.mu.Unlock()
	}
}

// advanceLocked wakes whoever waits for progress. REQUIRES: ch.mu is locked.
func (ch *changes) advanceLocked() {
	close(ch.mu.progress)
	ch.mu.progress = make(chan struct{})
}

// dealLocked does what had to wait for the batches of a group's time. REQUIRES: ch.mu is locked.
func (ch *changes) dealLocked(g *retired) {
	ch.freeSlotsLocked(g.slots)
	var errs []error
	// A place in the overlay is published as soon as it is written, to kernels that run already: none of them may have begun
	// while an earlier one read there, and brought what it read into caches they share. So it waits twice.
	for _, s := range g.overlay {
		if s.waited {
			ch.cache.overlay.free(s)
			continue
		}
		s.waited = true
		ch.mu.open.overlay = append(ch.mu.open.overlay, s)
	}
	for _, s := range g.mapSlots {
		ch.mu.log.operation()
		ch.mu.index.Reclaim(s)
	}
	for _, b := range g.buffers {
		b.device.Free(b.buffer)
	}
	for _, f := range g.rows {
		if !f.replaced {
			errs = append(errs, ch.advanceFreshLocked(f))
		}
	}
	errs = append(errs, ch.publishLocked())
	ch.failLocked(errors.Join(errs...))
}

// freeSlotsLocked gives slots that nothing reads to the allocators. REQUIRES: ch.mu is locked.
func (ch *changes) freeSlotsLocked(slots []slot) {
	for _, s := range slots {
		ch.failLocked(ch.freeLocked(s))
	}
}

// freeLocked gives a slot that nothing reads to the allocator. REQUIRES: ch.mu is locked.
func (ch *changes) freeLocked(s slot) error {
	d := ch.cache.devices[s.device]
	d.slots.Free(s.offset, s.bytes)
	if s.aside {
		d.aside -= int64(s.bytes)
	}
	if d.isLost() {
		return nil
	}
	if err := poison(ch.mu.sides[s.device], s); err != nil && !ch.cache.survives(d) {
		return err
	}
	return nil
}

// flush waits until everything that has been retired so far is dealt with.
func (ch *changes) flush(ctx context.Context) error {
	ch.mu.Lock()
	group := ch.mu.open
	if group.empty() {
		group = ch.mu.dealing
	}
	if group != nil {
		ch.workLocked()
	}
	ch.mu.Unlock()
	if group == nil {
		return nil
	}
	return ch.await(ctx, group.done)
}

// await waits for a group or for progress, read under the lock under which it was seen that it takes waiting.
func (ch *changes) await(ctx context.Context, progress <-chan struct{}) error {
	select {
	case <-progress:
	case <-ctx.Done():
		return ctx.Err()
	case <-ch.life.Done():
		return ErrClosed
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.mu.err
}

// queue is a queue of keys.
type queue struct {
	keys []uint64
	head int
}

func (q *queue) len() int { return len(q.keys) - q.head }

func (q *queue) push(key uint64) { q.keys = append(q.keys, key) }

func (q *queue) pop() uint64 {
	key := q.keys[q.head]
	if q.head++; q.head > len(q.keys)/2 {
		q.keys = q.keys[:copy(q.keys, q.keys[q.head:])]
		q.head = 0
	}
	return key
}
