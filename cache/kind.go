package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// kind is how a cache holds the rows of a table: in host memory, with some of them in slabs (inMemory), in pages (inPages), or in device memory (inDevices).
// What differs between tables before they are loaded, in their statistics and when they are closed is a method here; what changes do to them is in
// change.source. Kinds have no state, so that a Table can be given to New again. An attached cache has no kinds: it asks its owner.
type kind interface {
	// check returns what is wrong with a table.
	check(t *Table) error
	// checkAs returns an error if the elements of a table cannot be read as another type.
	checkAs(t *Table, of dtype.Type) error
	// checkShared returns an error if a table cannot be one of a cache with Options.Shared, and checkResident one if it cannot be resident.
	checkShared(t *Table) error
	checkResident(t *Table) error
	// checkTarget returns an error if a table that is open cannot be moved to slots of target bytes.
	checkTarget(t *read.Table, target int) error

	// hostBytes returns the host memory that a table takes: bytes, which what names in errors, or, for a table of pages, a part of the rest.
	hostBytes(t *Table) (bytes int64, what string, part *hostPart)
	// absentRow returns the seconds that a row which the host tier does not hold takes in a batch, 0 if there are none.
	absentRow(ctx context.Context, c *Cache, t *Table) float64
	// terms sets what CodecAuto has to know of the kind.
	terms(t *Table, to *registry.Terms)
	// load loads a table into its host tier.
	load(ctx context.Context, c *Cache, l loading) (*read.Table, error)

	// stats adds the numbers of the kind to the statistics of a table and of the cache.
	stats(t *read.Table, done read.TableTotals, to *TableStats, all *Stats)
	// taken returns the host memory that a table takes beside its host tier, and readBuffers the part that is the longest buffers of reads.
	taken(t *read.Table, s *TableStats) int64
	readBuffers(t *read.Table) int64
	// merge does what Cache.MergeUpdates says.
	merge(ctx context.Context, t *read.Table) error
	// end makes reads of pages return. close closes the pages and their log; if New has failed, the pages stay open: they are the caller's again.
	end(t *read.Table)
	close(t *read.Table, failed bool) error
}

// loading is a table that is being loaded.
type loading struct {
	number int // of the table
	table  *Table
	terms  registry.Terms
	memory int64 // most host memory of a table of pages
	keep   *transfer.Keep
}

// plainKind has the methods of a kind without pages, adopted memory, and slots in device memory.
type plainKind struct{}

func (plainKind) check(*Table) error                                       { return nil }
func (plainKind) checkAs(*Table, dtype.Type) error                         { return nil }
func (plainKind) checkShared(*Table) error                                 { return nil }
func (plainKind) absentRow(context.Context, *Cache, *Table) float64        { return 0 }
func (plainKind) terms(*Table, *registry.Terms)                            {}
func (plainKind) stats(*read.Table, read.TableTotals, *TableStats, *Stats) {}
func (plainKind) taken(t *read.Table, _ *TableStats) int64                 { return t.Tier.IndexBytes() }
func (plainKind) readBuffers(*read.Table) int64                            { return 0 }
func (plainKind) merge(context.Context, *read.Table) error                 { return nil }
func (plainKind) end(*read.Table)                                          {}
func (plainKind) close(*read.Table, bool) error                            { return nil }
func (plainKind) checkTarget(t *read.Table, _ int) error {
	return badOption("cache: table %s must be resident to be moved to a target", t.Name)
}

// inMemory is a table all of whose rows are in host memory.
type inMemory struct {
	plainKind
	adopt   []byte // memory that becomes the host tier; nil: the host tier gets memory of its own
	restore bool   // Close restores the rows in adopt
}

func (m inMemory) checkShared(t *Table) error {
	if m.adopt == nil {
		return nil
	}
	return fmt.Errorf("cache: table %s: must not be adopted by a cache with Shared, as other processes cannot map the caller's memory: FromBytes or FromSlice copies it to memory that they can", t.name)
}

func (m inMemory) checkResident(t *Table) error {
	if m.adopt == nil {
		return nil
	}
	return fmt.Errorf("cache: table %s: must not be adopted to be resident; FromBytes copies the memory", t.name)
}

func (m inMemory) hostBytes(t *Table) (bytes int64, what string, part *hostPart) {
	if m.adopt == nil {
		bytes = int64(tableBytes(t))
	}
	return bytes, "table " + t.name + ": cachebench pack makes pages", nil
}

func (m inMemory) load(ctx context.Context, c *Cache, l loading) (*read.Table, error) {
	taken, err := c.state.take(l)
	if err != nil {
		return nil, err
	}
	if taken != nil {
		c.store.Nodes.Check(taken, c.watch.Log)
		return taken, nil
	}
	keep, err := c.state.keep(l)
	if err != nil {
		return nil, err
	}
	l.keep = keep
	loaded, err := l.load(ctx, c, m.adopt, !c.opts.Host.NoEqualRows)
	if err == nil {
		loaded.Restore = m.restore
	}
	return loaded, err
}

// load reads and encodes all rows of the table.
func (l loading) load(ctx context.Context, c *Cache, adopt []byte, equalRows bool) (*read.Table, error) {
	t := l.table
	mode, err := transfer.ParseMode(string(c.opts.Host.Tier))
	if err != nil {
		return nil, err
	}
	if s, ok := t.source.(*sequential); ok {
		if err := s.rewind(); err != nil {
			return nil, err
		}
	}
	var progress func(rows int64)
	if tell := c.opts.Host.Progress; tell != nil {
		progress = func(rows int64) { tell(l.number, rows, int64(t.Rows())) }
	}
	tier, err := transfer.Load(c.set.Devices[0].Device, t.source, transfer.Options{
		Codec: string(c.codecOf(*t)), DType: t.dtype, Mode: mode, Seed: c.opts.Seed, Workers: c.opts.Host.Workers, Capacity: t.capacity,
		Context: ctx, Nodes: c.store.Nodes.Tier, Terms: l.terms, Measure: c.measuring(), Adopt: adopt, Progress: progress, Shared: c.set.Shared, EqualRows: equalRows, Keep: l.keep,
	})
	if err != nil && adopt != nil {
		err = fmt.Errorf("%w; FromBytes copies the memory instead of adopting it", err)
	}
	if err != nil {
		return nil, err
	}
	if tier.Adopted() {
		for _, d := range c.set.Devices {
			if err := tier.Reaches(d.Device); err != nil {
				err = errors.Join(err, tier.Restore())
				tier.Close()
				return nil, err
			}
		}
	}
	if choice := tier.Choice(); choice != nil {
		c.watch.Log.Info("codec picked", slog.String("table", t.name), slog.String("codec", choice.Codec), slog.String("machine", choice.Machine), slog.String("reason", choice.Reason), slog.String("basis", choice.Basis))
	}
	loaded := &read.Table{Name: t.name, DType: t.dtype, Tier: tier}
	c.store.Nodes.Check(loaded, c.watch.Log)
	return loaded, nil
}
