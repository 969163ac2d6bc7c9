package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// Memory is a place for one table in memory: a Writer's pages become what the stores that Open returns hold. Generations that are not the
// current one are freed with their last store.
type Memory struct {
	mu struct {
		sync.Mutex
		committed *memoryGeneration
		next      uint64
	}
}

type memoryGeneration struct {
	manifest Manifest
	parts    Parts
	pages    [][]byte
}

// NewMemory returns a place without a table.
func NewMemory() *Memory { return new(Memory) }

// Writer returns a writer of the next generation.
func (p *Memory) Writer() Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.next++
	return &memoryWriter{place: p, g: &memoryGeneration{}, generation: p.mu.next}
}

// Open returns a store of the generation that was committed last.
func (p *Memory) Open() (*MemoryStore, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.committed == nil {
		return nil, errors.New("pages: memory: no table was committed")
	}
	return &MemoryStore{place: p, g: p.mu.committed}, nil
}

type memoryWriter struct {
	place      *Memory
	g          *memoryGeneration
	generation uint64
	over       *memoryGeneration // must be the current one at Commit; nil: any
}

func (w *memoryWriter) Generation() uint64 { return w.generation }

func (w *memoryWriter) WritePages(ctx context.Context, first uint32, pages [][]byte) error {
	if int(first) != len(w.g.pages) {
		return fmt.Errorf("pages: memory: first page (%d) must be %d", first, len(w.g.pages))
	}
	for _, p := range pages {
		w.g.pages = append(w.g.pages, bytes.Clone(p))
	}
	return ctx.Err()
}

func (w *memoryWriter) Commit(ctx context.Context, m *Manifest, parts *Parts) error {
	if int(m.Pages) != len(w.g.pages) || m.Generation != w.generation {
		return fmt.Errorf("pages: memory: %d pages of generation %d were written, the manifest has %d of %d", len(w.g.pages), w.generation, m.Pages, m.Generation)
	}
	w.g.manifest = *m
	for i, b := range parts {
		w.g.parts[i] = bytes.Clone(b)
	}
	w.place.mu.Lock()
	defer w.place.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.over != nil && w.over != w.place.mu.committed {
		return errReplacedMemory
	}
	w.place.mu.committed = w.g
	return nil
}

func (w *memoryWriter) Abort() error { return nil }

// MemoryStore is a Store of pages in memory. Fault, if not nil, is called for every page that is read and may return an error in its place,
// or wait; set it before the store is used.
type MemoryStore struct {
	place *Memory
	g     *memoryGeneration
	Fault func(ctx context.Context, page uint32) error
}

// NewMemoryStore returns a store of pages that lie one after the other in memory, which must not change.
func NewMemoryStore(m *Manifest, parts *Parts, pages []byte) (*MemoryStore, error) {
	for p, contents := range parts {
		if err := m.Check(Part(p), contents); err != nil {
			return nil, err
		}
	}
	x, err := newIndex(m, parts[PartIndex])
	if err != nil {
		return nil, err
	}
	if int64(len(pages)) != m.PageTotal {
		return nil, fmt.Errorf("pages: pages (%d bytes) must have %d", len(pages), m.PageTotal)
	}
	g := &memoryGeneration{manifest: *m, parts: *parts, pages: make([][]byte, m.Pages)}
	for i := range g.pages {
		n := x.length(uint32(i))
		g.pages[i], pages = pages[:n:n], pages[n:]
	}
	return &MemoryStore{g: g}, nil
}

// Name implements Store.
func (s *MemoryStore) Name() string { return "memory" }

// Manifest implements Store.
func (s *MemoryStore) Manifest() *Manifest { return &s.g.manifest }

// Part implements Store.
func (s *MemoryStore) Part(_ context.Context, p Part) ([]byte, error) {
	return s.g.parts[p], s.g.manifest.Check(p, s.g.parts[p])
}

// Page returns the bytes of a page, which tests may change before the store is used.
func (s *MemoryStore) Page(page uint32) []byte { return s.g.pages[page] }

// ReadPages implements Store.
func (s *MemoryStore) ReadPages(ctx context.Context, pages []uint32, into [][]byte, done func(i int, page []byte, err error)) {
	for i, p := range pages {
		err := ctx.Err()
		if err == nil && s.Fault != nil {
			err = s.Fault(ctx, p)
		}
		if err != nil {
			done(i, nil, err)
			continue
		}
		done(i, into[i][:copy(into[i], s.g.pages[p])], nil)
	}
}

var _ Rewritable = (*MemoryStore)(nil)

var errReplacedMemory = errors.New("pages: memory: another generation was committed meanwhile")

// Rewriter implements Rewritable.
func (s *MemoryStore) Rewriter(context.Context) (Writer, error) {
	w := s.place.Writer().(*memoryWriter)
	w.over = s.g
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if s.place.mu.committed != s.g {
		return nil, errReplacedMemory
	}
	return w, nil
}

// Settle implements Rewritable.
func (s *MemoryStore) Settle(context.Context) error { return nil }

// Current implements Rewritable.
func (s *MemoryStore) Current(context.Context) (uint64, error) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	return s.place.mu.committed.manifest.Generation, nil
}

// Reopen implements Rewritable.
func (s *MemoryStore) Reopen(context.Context) (Store, error) {
	fresh, err := s.place.Open()
	if err != nil {
		return nil, err
	}
	fresh.Fault = s.Fault
	return fresh, nil
}

// DropOld implements Rewritable.
func (s *MemoryStore) DropOld(context.Context) error { return nil }

// Close implements Store.
func (s *MemoryStore) Close() error { return nil }
