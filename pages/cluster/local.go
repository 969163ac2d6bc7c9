package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/tensorcache/tensorcache/pages"
)

// Local is a store whose pages are kept in a folder of this machine once they have been read: the pages that were read last, up to a number of
// bytes, also from one process to the next. It implements pages.Store and is safe for concurrent use. What its files hold is checked; a page
// that is damaged there is read from the store behind.
type Local struct {
	pages.Store
	log     *slog.Logger
	files   *localFiles
	fresh   chan []byte // buffers for pages that are to be written
	writing chan freshPage
	writer  sync.WaitGroup
	counts  struct{ hits, misses, written, skipped, damaged atomic.Int64 }
	mu      struct {
		sync.Mutex
		slots *simplelru.LRU[uint32, slotOfPage]
		free  []int
		gone  bool // the files cannot be written to
	}
	life struct {
		sync.RWMutex
		closed bool
	}
}

type slotOfPage struct {
	slot int
	entry
}

type freshPage struct {
	page   uint32
	length int
	memory []byte
}

const (
	// localReaders is the number of pages that one call reads from the folder at once.
	localReaders = 16
	// localQueue is the number of pages that wait to be written. Further ones are passed over.
	localQueue = 32
)

// NewLocal keeps pages of a store in a folder, at most so many bytes, at least two pages. The folder is made if it does not exist; it belongs
// to one process at a time. The store is closed with it, also if there is an error.
func NewLocal(s pages.Store, folder string, bytes int64, log *slog.Logger) (*Local, error) {
	m := s.Manifest()
	if log == nil {
		log = slog.Default()
	}
	fail := func(err error) (*Local, error) {
		return nil, errors.Join(fmt.Errorf("cluster: pages of table %s in folder %s: %w", m.Name, folder, err), s.Close())
	}
	if err := checkName(m.Name); err != nil {
		return fail(err)
	}
	slotCount := min(bytes/int64(m.BufferBytes()+localEntry), int64(m.Pages))
	if slotCount < min(2, int64(m.Pages)) {
		return fail(fmt.Errorf("bytes (%d) must be at least two pages (%d)", bytes, 2*(m.BufferBytes()+localEntry)))
	}
	l := &Local{Store: s, log: log, fresh: make(chan []byte, localQueue), writing: make(chan freshPage, localQueue)}
	var err error
	if l.mu.slots, err = simplelru.NewLRU[uint32, slotOfPage](int(max(1, slotCount)), nil); err != nil {
		return fail(err)
	}
	var old map[int]entry
	if l.files, old, err = openLocalFiles(folder, m, int(slotCount)); err != nil {
		return fail(err)
	}
	for slot := range int(slotCount) {
		if e, ok := old[slot]; ok && !l.mu.slots.Contains(e.page) {
			l.mu.slots.Add(e.page, slotOfPage{slot, e})
		} else {
			l.mu.free = append(l.mu.free, slot)
		}
	}
	for range localQueue {
		l.fresh <- nil // made when it is needed
	}
	l.writer.Go(l.write)
	return l, nil
}

// Name implements pages.Store.
func (l *Local) Name() string { return l.Store.Name() + ", cached on this machine" }

// ReadPages implements pages.Store.
func (l *Local) ReadPages(ctx context.Context, numbers []uint32, into [][]byte, done func(i int, page []byte, err error)) {
	l.life.RLock()
	defer l.life.RUnlock()
	if l.life.closed {
		for i := range numbers {
			done(i, nil, ErrClosed)
		}
		return
	}
	var hits []int
	var misses missing
	places := make([]slotOfPage, len(numbers))
	l.mu.Lock()
	for i, page := range numbers {
		if at, ok := l.mu.slots.Get(page); ok {
			places[i] = at
			hits = append(hits, i)
		} else {
			misses.which = append(misses.which, i)
		}
	}
	l.mu.Unlock()
	var behind sync.WaitGroup
	behind.Go(func() { l.readBehind(ctx, numbers, into, misses.which, done) })
	var again missing
	var readers sync.WaitGroup
	var next atomic.Int64
	for range min(localReaders, len(hits)) {
		readers.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(hits)); n = next.Add(1) - 1 {
				i := hits[n]
				switch {
				case ctx.Err() != nil:
					done(i, nil, ctx.Err())
				case l.read(places[i], into[i]):
					l.counts.hits.Add(1)
					done(i, into[i][:places[i].length], nil)
				default:
					l.counts.damaged.Add(1)
					l.forget(numbers[i], places[i])
					again.add(i)
				}
			}
		})
	}
	readers.Wait()
	l.readBehind(ctx, numbers, into, again.which, done)
	behind.Wait()
}

// missing are indices of pages that the folder does not have.
type missing struct {
	sync.Mutex
	which []int
}

func (m *missing) add(i int) {
	m.Lock()
	defer m.Unlock()
	m.which = append(m.which, i)
}

func (l *Local) read(at slotOfPage, into []byte) bool {
	if !isAligned(into) {
		memory := aligned(l.files.slotBytes)
		return l.files.read(at.slot, at.entry, memory) && copy(into, memory[:at.length]) == int(at.length)
	}
	return l.files.read(at.slot, at.entry, into)
}

// forget takes a page out of the folder's list, if it still lies where it was read.
func (l *Local) forget(page uint32, at slotOfPage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, ok := l.mu.slots.Peek(page); ok && now == at {
		l.mu.slots.Remove(page)
		l.mu.free = append(l.mu.free, at.slot)
	}
}

// readBehind reads pages from the store behind and has them written.
func (l *Local) readBehind(ctx context.Context, numbers []uint32, into [][]byte, which []int, done func(i int, page []byte, err error)) {
	if len(which) == 0 {
		return
	}
	l.counts.misses.Add(int64(len(which)))
	part, memory := make([]uint32, len(which)), make([][]byte, len(which))
	for k, i := range which {
		part[k], memory[k] = numbers[i], into[i]
	}
	l.Store.ReadPages(ctx, part, memory, func(k int, page []byte, err error) {
		if err == nil && len(page) > 0 {
			l.keep(part[k], page)
		}
		done(which[k], page, err)
	})
}

// keep has a page written, unless too many wait for that.
func (l *Local) keep(page uint32, contents []byte) {
	var memory []byte
	select {
	case memory = <-l.fresh:
	default:
		l.counts.skipped.Add(1)
		return
	}
	if memory == nil {
		memory = aligned(l.files.slotBytes)
	}
	l.writing <- freshPage{page, copy(memory, contents), memory} // has room for all buffers
}

// write writes pages until the store is closed.
func (l *Local) write() {
	for p := range l.writing {
		if at, ok := l.slotFor(p); ok {
			err := l.files.write(at.slot, at.entry, p.memory)
			l.mu.Lock()
			if err == nil {
				l.mu.slots.Add(p.page, at)
				l.counts.written.Add(1)
			} else {
				l.mu.free = append(l.mu.free, at.slot)
				l.mu.gone = true
				l.log.Error("cluster: pages are no longer kept on this machine", slog.String("table", l.Manifest().Name), slog.Any("error", err))
			}
			l.mu.Unlock()
		}
		l.fresh <- p.memory
	}
}

// slotFor returns a slot for a page that the folder does not have: a free one, or that of the page which was not read for longest.
func (l *Local) slotFor(p freshPage) (slotOfPage, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.gone || l.mu.slots.Contains(p.page) {
		return slotOfPage{}, false
	}
	if len(l.mu.free) == 0 {
		_, oldest, ok := l.mu.slots.RemoveOldest()
		if !ok {
			return slotOfPage{}, false
		}
		l.mu.free = append(l.mu.free, oldest.slot)
	}
	slot := l.mu.free[len(l.mu.free)-1]
	l.mu.free = l.mu.free[:len(l.mu.free)-1]
	return slotOfPage{slot, entry{p.page, uint32(p.length), crc32.Checksum(p.memory[:p.length], castagnoli)}}, true
}

// Close writes what waits to be written, and closes the store behind.
func (l *Local) Close() error {
	l.life.Lock()
	defer l.life.Unlock()
	if l.life.closed {
		return nil
	}
	l.life.closed = true
	close(l.writing)
	l.writer.Wait()
	return errors.Join(l.files.close(), l.Store.Close())
}
