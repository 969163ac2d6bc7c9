package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// ResidentOptions say how a table is resident. The zero value of a field is its default.
type ResidentOptions struct {
	// Target is the bytes of each row's slot in device memory, a multiple of 16. Targets above the row bytes are taken for these, rounded up to 16.
	// Default: the target with the least expected time of a row within the budget, or up to 12 of them, by range of rows, where rows of different
	// lengths follow each other and that saves enough.
	Target int
	// MaxTarget is the largest target, in bytes, that Retarget can move the table to: so much device memory is taken for each row. Targets above the row
	// bytes are taken for these, rounded up to 16. Default: the target at first.
	MaxTarget int
	// MaxOverflow is the largest share of rows, 0 to 1, that may be longer than a target that is chosen: of each range, if there are several. Default 0.3.
	MaxOverflow float64
	// Retarget moves the table to another target, or to several, in the background when more rows than MaxOverflow, of all or of a range, are longer than the target.
	Retarget bool
	// Buddy says where what is longer than the slots lies. Default BuddyHost.
	Buddy BuddyMemory
}

// BuddyMemory says in which memory the overflow places of a resident table lie: what rows have beyond their slots.
type BuddyMemory string

const (
	// BuddyHost is page-locked host memory.
	BuddyHost BuddyMemory = read.BuddyHost
	// BuddyPeer is memory of devices: the overflow places of a device's rows lie on another one, that with the most budget left, or on the device itself
	// where no other has enough. New and Retarget fail with ErrBudget if the budgets have no room. A lost device takes them along, as it does slots.
	BuddyPeer BuddyMemory = read.BuddyPeer
	// BuddyAuto is BuddyPeer where the cache has several devices, no cached tables, which would use the budget, and enough of it; else BuddyHost.
	BuddyAuto BuddyMemory = read.BuddyAuto
)

// Resident returns the table as one whose rows all lie in device memory, compressed, in slots of one length, or of one for each range of rows, which New
// chooses. What a longer row has beyond its slot lies in page-locked host memory, or on another device (ResidentOptions.Buddy). Nothing is admitted or evicted, and every lookup hits. The rows are divided over all
// devices, which must read each other's memory; if a device is lost, batches of the table fail. Resident tables take their device memory from the
// budget first, and cached tables have the rest.
func (t Table) Resident() Table { return t.ResidentWith(ResidentOptions{}) }

// ResidentWith is Resident with options.
func (t Table) ResidentWith(o ResidentOptions) Table {
	t.kind = inDevices{before: t.kind, o: o}
	return t
}

// inDevices is a resident table: all of its rows are in device memory.
type inDevices struct {
	plainKind
	before kind // of the table before Resident: what can be wrong with it
	o      ResidentOptions
}

func (d inDevices) checkAs(t *Table, of dtype.Type) error { return d.before.checkAs(t, of) }
func (d inDevices) checkShared(t *Table) error            { return d.before.checkShared(t) }
func (d inDevices) checkResident(t *Table) error          { return d.before.checkResident(t) }

func (d inDevices) check(t *Table) error {
	o := &d.o
	if err := d.before.check(t); err != nil {
		return err
	}
	switch {
	case o.Target < 0 || o.Target%buddy.MinTarget != 0:
		return fmt.Errorf("cache: table %s: target (%d B) must be a multiple of %d, or 0", t.name, o.Target, buddy.MinTarget)
	case o.MaxTarget < 0 || o.MaxTarget%buddy.MinTarget != 0:
		return fmt.Errorf("cache: table %s: MaxTarget (%d B) must be a multiple of %d, or 0", t.name, o.MaxTarget, buddy.MinTarget)
	case !(o.MaxOverflow >= 0 && o.MaxOverflow <= 1):
		return fmt.Errorf("cache: table %s: MaxOverflow (%v) must be 0 to 1", t.name, o.MaxOverflow)
	case !slices.Contains([]BuddyMemory{"", BuddyHost, BuddyPeer, BuddyAuto}, o.Buddy):
		return fmt.Errorf("cache: table %s: Buddy (%q) must be %s, %s or %s", t.name, o.Buddy, BuddyHost, BuddyPeer, BuddyAuto)
	}
	return d.before.checkResident(t)
}

func (d inDevices) hostBytes(t *Table) (bytes int64, what string, part *hostPart) {
	return int64(tableBytes(t)), "resident table " + t.name + " while it is loaded", nil
}

func (d inDevices) terms(t *Table, to *registry.Terms) {
	to.Resident = d.o.want().MaxOverflow
	if d.o.Target > 0 { // any share may overflow
		to.Resident, to.Budget = 1, int64(d.o.Target+buddy.WordBytes)*max(t.capacity, int64(t.Rows()))
	}
}

func (d inDevices) load(ctx context.Context, c *Cache, l loading) (*read.Table, error) {
	loaded, err := l.load(ctx, c, nil, false)
	if err == nil {
		loaded.WantResident = d.o.want()
	}
	return loaded, err
}

// want returns the options with their defaults.
func (o *ResidentOptions) want() *read.ResidentOptions {
	want := read.ResidentOptions{
		Target: o.Target, MaxTarget: o.MaxTarget, MaxOverflow: o.MaxOverflow, Retarget: o.Retarget, Buddy: string(cmp.Or(o.Buddy, BuddyHost)),
	}
	if want.MaxOverflow == 0 {
		want.MaxOverflow = buddy.Threshold
	}
	return &want
}

// Retarget moves all rows of a resident table to slots of target bytes, a multiple of 16, or, if target is 0, of the length or lengths, by range of rows, that
// New would choose for the rows as they are now. Targets above the row bytes are taken for these, rounded up to 16. It returns when all rows have moved. Gathers do not wait for it, and Updates
// of the table wait while a part of it moves, some milliseconds at a time. Batches that were captured before look each row's target up from then on, which takes
// longer: capture them again.
//
// Slots move in place: the device memory that the table takes stays the same. A target larger than the first one, or than the mean of the first ones, needs
// ResidentOptions.MaxTarget; else the error wraps ErrBudget. Memory for what is longer than the slots is taken anew, from the budget if it is on devices, and
// the old memory is freed at the end. When ctx ends, or the cache is closed, some rows have moved; a later Retarget moves the others, also after an error
// that wraps ErrHeld. Moves of a table run one at a time.
func (c *Cache) Retarget(ctx context.Context, table, target int) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return err
	}
	return c.owner.retarget(ctx, table, target)
}

func (inDevices) checkTarget(t *read.Table, target int) error {
	if target < 0 || target%buddy.MinTarget != 0 {
		return badOption("cache: table %s: target (%d B) must be a multiple of %d, or 0", t.Name, target, buddy.MinTarget)
	}
	return nil
}

// ResidentStats say how the rows of a resident table lie.
type ResidentStats struct {
	// TargetBytes is the length of a slot, the mean of all slots if they have several, as Ranges says then; else Ranges is nil. OverflowRows are the rows
	// whose stored form is longer, by OverflowBytes together. PastMaxOverflow says that these are a larger share of the rows, or of those of a range, than MaxOverflow:
	// Retarget would help.
	TargetBytes     int `kind:"level" metric:"tensorcache.resident.target" unit:"By" help:"Bytes of a row's slot, the mean if the table has several targets."`
	Ranges          []ResidentRange
	OverflowRows    int64 `kind:"level" metric:"tensorcache.resident.overflow.rows" unit:"{row}" help:"Rows that are longer than their slot."`
	OverflowBytes   int64
	PastMaxOverflow bool `kind:"level" metric:"tensorcache.resident.overflow.exceeded" unit:"{table}" help:"1 while more rows than MaxOverflow are longer than their slot, else 0."`
	// MaxTargetBytes is the largest target that Retarget can move the table to: as long are the slots that device memory was taken for.
	MaxTargetBytes int `kind:"level" metric:"tensorcache.resident.target.limit" unit:"By" help:"Bytes of the longest slots that Retarget can give the rows."`
	// DeviceBytes is the device memory of slots and words. BuddyBytes is the memory of the overflow places: PeerBytes of it lie on devices, and the others
	// in host memory.
	DeviceBytes int64 `kind:"level" metric:"tensorcache.resident.usage" unit:"By" help:"Bytes of slots and words on all devices."`
	BuddyBytes  int64
	PeerBytes   int64 `kind:"level" metric:"tensorcache.resident.peer.usage" unit:"By" help:"Bytes of overflow places on devices, if they are there and not in host memory."`
	// Gain is row bytes ÷ TargetBytes: how many bytes of rows one byte of slots holds.
	Gain float64
	// OverflowReads counts the lookups of rows that were longer than their slots, and OverflowBytesRead what was read of them from overflow places.
	OverflowReads     int64 `kind:"counter" metric:"tensorcache.resident.overflow.reads" unit:"{row}" help:"Lookups of rows that are longer than their slot."`
	OverflowBytesRead int64 `kind:"counter" metric:"tensorcache.resident.overflow.bytes" unit:"By" help:"Bytes read from overflow places."`
}

// ResidentRange is rows of a resident table whose slots have one length: Rows of them, up to the table's capacity, from FirstRow on.
type ResidentRange struct {
	FirstRow    int64
	Rows        int64 `kind:"level" metric:"tensorcache.resident.range.rows" unit:"{row}" help:"Rows of one of several ranges, by its first row."`
	TargetBytes int   `kind:"level" metric:"tensorcache.resident.range.target" unit:"By" help:"Bytes of a row's slot in one of several ranges of rows, by its first row."`
}

// residentRanges returns the ranges of a table in the order of their rows, nil if there is one.
func residentRanges(r *read.Resident) (all []ResidentRange) {
	spans, devices := r.Spans(), int64(r.Rows.Devices)
	if len(spans) == 1 {
		return nil
	}
	for _, s := range spans {
		first := s.From * devices
		all = append(all, ResidentRange{first, min(s.To*devices, r.Rows.Rows) - first, s.Target})
	}
	return all
}

func (inDevices) stats(t *read.Table, done read.TableTotals, to *TableStats, all *Stats) {
	r := t.Resident
	s := &ResidentStats{
		TargetBytes: int(r.Target() + 0.5), Ranges: residentRanges(r), DeviceBytes: r.DeviceBytes(), Gain: float64(r.Rows.RowBytes) / r.Target(),
		OverflowReads: done.Overflow, OverflowBytesRead: done.HostBytes,
	}
	host, devices := r.BuddyBytes()
	s.BuddyBytes, s.PeerBytes = host+devices, devices
	s.OverflowRows, s.OverflowBytes = r.Overflow()
	s.PastMaxOverflow, s.MaxTargetBytes = r.Past(t.Tier.Rows()), r.MostTarget()
	to.Resident = s
	all.ResidentBytes += s.DeviceBytes + s.PeerBytes
	all.HostBytes += host
}
