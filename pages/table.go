package pages

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// Table reads the rows of one generation of a table from one or more stores. It is safe for concurrent use.
type Table struct {
	stores   []Store
	manifest *Manifest
	index    *index
	codec    codec.Codec // nil: all rows are raw
	order    []byte      // empty: positions are row numbers
	windows  *windows
	newer    Newer // nil: pages have the newest versions of all rows
}

// Newer has newer versions of some rows of a table than its pages have: those of a delta log. It is safe for concurrent use.
type Newer interface {
	// Newest returns the newest version of a row, in the form in which the table's pages have rows, which may lie in buf. ok is false if the pages have it.
	Newest(row int64, buf []byte) (stored []byte, compressed, ok bool, err error)
	Close() error
}

// Overlay has ReadRows take newer versions of rows from n, which is the table's from then on. No other call may be under way.
func (t *Table) Overlay(n Newer) { t.newer = n }

// OpenStores opens a table that several stores have: a page that one lacks, or has corrupt, is read from the next. All must hold the same
// contents (Manifest.Same). Index, metadata and order come from the first store that has them. The table closes the stores, also if there
// is an error.
func OpenStores(ctx context.Context, stores ...Store) (_ *Table, err error) {
	t := &Table{stores: stores}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if len(stores) == 0 {
		return nil, errors.New("pages: stores (0) must be at least one")
	}
	t.manifest = stores[0].Manifest()
	for _, s := range stores[1:] {
		if err := t.manifest.Same(s.Manifest()); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	var parts Parts
	for p := range parts {
		if parts[p], err = t.part(ctx, Part(p)); err != nil {
			return nil, err
		}
	}
	if t.index, err = newIndex(t.manifest, parts[PartIndex]); err != nil {
		return nil, err
	}
	if t.codec, err = t.manifest.codec(parts[PartMetadata]); err != nil {
		return nil, err
	}
	t.order = parts[PartOrder]
	for row := int64(0); 4*row < int64(len(t.order)); row++ {
		if p := t.Position(row); p >= t.manifest.Rows {
			return nil, fmt.Errorf("pages: table %s: order: position (%d) of row %d must be below %d", t.manifest.Name, p, row, t.manifest.Rows)
		}
	}
	t.windows = newWindows(t.manifest.BufferBytes())
	return t, nil
}

// part returns a part from the first store that has it.
func (t *Table) part(ctx context.Context, p Part) ([]byte, error) {
	var faults []error
	for _, s := range t.stores {
		b, err := s.Part(ctx, p)
		if err == nil {
			return b, nil
		}
		faults = append(faults, fmt.Errorf("pages: %s: table %s: %v: %w", s.Name(), t.manifest.Name, p, err))
	}
	return nil, errors.Join(faults...)
}

// codec returns the codec that the metadata are of, nil for raw rows.
func (m *Manifest) codec(metadata []byte) (codec.Codec, error) {
	if m.Codec == registry.None {
		return nil, nil
	}
	f, err := registry.Family(m.Codec)
	if err != nil {
		return nil, fmt.Errorf("pages: table %s: %w", m.Name, err)
	}
	c, err := f.Unmarshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("pages: table %s: metadata of codec %s: %w", m.Name, m.Codec, err)
	}
	if c.RowBytes() != m.RowBytes {
		return nil, fmt.Errorf("pages: table %s: codec's rows (%d bytes) must have %d", m.Name, c.RowBytes(), m.RowBytes)
	}
	return c, nil
}

// Manifest describes the table. It must not be changed.
func (t *Table) Manifest() *Manifest { return t.manifest }

// Codec returns the codec that decodes rows that are not raw; nil if all rows are raw.
func (t *Table) Codec() codec.Codec { return t.codec }

// Stores returns the stores, in the order in which pages are looked for. They must not be closed.
func (t *Table) Stores() []Store { return t.stores }

// MemoryBytes returns the memory that index and order take. Buffers of reads come on top: at most 64 MiB.
func (t *Table) MemoryBytes() int64 { return t.index.memoryBytes() + int64(len(t.order)) }

// BufferBytes returns the most memory that buffers of reads take together.
func (t *Table) BufferBytes() int64 {
	return min(maxWindows*int64(t.windows.buffers)*int64(t.windows.bufferBytes), maxWindows*max(t.manifest.PageTotal, int64(t.windows.bufferBytes)))
}

// Position returns where a row lies in the order of the pages. REQUIRES: 0 ≤ row < Rows.
func (t *Table) Position(row int64) int64 {
	if len(t.order) == 0 {
		return row
	}
	return int64(binary.LittleEndian.Uint32(t.order[4*row:]))
}

// PageOf returns the page that a row lies in. REQUIRES: 0 ≤ row < Rows.
func (t *Table) PageOf(row int64) uint32 {
	page, _ := t.index.locate(t.Position(row))
	return page
}

// Positions returns the positions [from, to) of the rows that a page holds. REQUIRES: page < Manifest.Pages.
func (t *Table) Positions(page uint32) (from, to int64) { return t.index.positions(page) }

// Close closes the stores. Reads that are under way fail or end first.
func (t *Table) Close() error {
	var faults []error
	for _, s := range t.stores {
		faults = append(faults, s.Close())
	}
	if t.newer != nil {
		faults = append(faults, t.newer.Close())
	}
	return errors.Join(faults...)
}
