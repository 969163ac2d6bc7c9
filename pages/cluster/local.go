package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/tensorcache/tensorcache/internal/directio"
	"github.com/tensorcache/tensorcache/pages"
)

// Local is a store whose pages are kept in a folder of this machine once they have been read: the pages that were read last, up to a number of
// bytes, also from one process to the next. It implements pages.Store and is safe for concurrent use. What its files hold is checked; a page
// that is damaged there is read from the store behind.
type Local struct {
	pages.Store
	log     *slog.Logger
	folder  string
	bytes   int64 // most of pages in the folder
	files   *localFiles
	fresh   chan []byte // buffers for pages that are to be written
	writing chan freshPage
	writer  sync.WaitGroup
	reading chan struct{} // has room for the reads of the folder that are under way
	memory  sync.Pool     // of *[]byte, for a page each
	wait    time.Duration // how long a call waits for the folder
	left    atomic.Bool   // another store has the folder
	alone   atomic.Int64  // until when the folder is not read, in nanoseconds since 1970
	counts  struct{ hits, misses, written, skipped, damaged, evicted, late atomic.Int64 }
	mu      struct {
		sync.Mutex
		slots *simplelru.LRU[uint32, slotOfPage]
		free  []int
		turn  uint64 // the last slotOfPage's
		gone  bool   // the files cannot be written to
	}
	life struct {
		sync.RWMutex
		closed bool
	}
}

// slotOfPage is where a page lies. The turn tells it from the same page's earlier time in the slot, which another page may have ended.
type slotOfPage struct {
	slot int
	turn uint64
	entry
}

type freshPage struct {
	page   uint32
	length int
	memory []byte
	// reached, if not nil, is closed when all pages before have been written. There is no page then.
	reached chan struct{}
}

const (
	// localReaders is the number of pages that one call reads from the folder at once, and localReads that of all calls together.
	localReaders = 16
	localReads   = 64
	// localWait is how long a call waits for the folder. Pages that have not arrived by then are read from the store behind, and the folder is left
	// alone for localRest.
	localWait = time.Second
	localRest = 10 * time.Second
	// localEnd is how long Close waits for pages that are being written.
	localEnd = 5 * time.Second
	// localQueue is the number of pages that wait to be written. Further ones are passed over.
	localQueue = 32
)

// NewLocal keeps pages of a store in a folder, at most so many bytes, at least two pages. The folder is made if it does not exist; it belongs
// to one process at a time. The store is closed with it, also if there is an error.
func NewLocal(s pages.Store, folder string, bytes int64, log *slog.Logger) (*Local, error) {
	if log == nil {
		log = slog.Default()
	}
	l, err := newLocal(s, folder, bytes, log)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// newLocal is NewLocal that leaves the store open if there is an error.
func newLocal(s pages.Store, folder string, bytes int64, log *slog.Logger) (*Local, error) {
	m := s.Manifest()
	fail := func(err error) (*Local, error) {
		return nil, fmt.Errorf("cluster: pages of table %s in folder %s: %w", m.Name, folder, err)
	}
	if err := checkName(m.Name); err != nil {
		return fail(err)
	}
	slotCount := min(bytes/int64(m.BufferBytes()+localEntry), int64(m.Pages))
	if slotCount < min(2, int64(m.Pages)) {
		return fail(fmt.Errorf("bytes (%d) must be at least two pages (%d)", bytes, 2*(m.BufferBytes()+localEntry)))
	}
	l := &Local{Store: s, log: log, folder: folder, bytes: bytes, reading: make(chan struct{}, localReads), wait: localWait, fresh: make(chan []byte, localQueue), writing: make(chan freshPage, localQueue)}
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
			l.mu.slots.Add(e.page, slotOfPage{slot, 0, e})
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
	r := &localRead{l: l, numbers: numbers, into: into, done: done, finished: make(chan struct{})}
	var misses []int
	alone := l.left.Load() || time.Now().UnixNano() < l.alone.Load()
	l.mu.Lock()
	for i, page := range numbers {
		if at, ok := l.mu.slots.Get(page); ok && !alone {
			r.places, r.which = append(r.places, at), append(r.which, i)
		} else {
			misses = append(misses, i)
		}
	}
	l.mu.Unlock()
	var behind sync.WaitGroup
	behind.Go(func() { l.readBehind(ctx, numbers, into, misses, done) })
	l.readBehind(ctx, numbers, into, r.run(ctx), done)
	behind.Wait()
}

// forget takes a page out of the folder's list. It returns false if the page does not lie any more where it was read.
func (l *Local) forget(page uint32, at slotOfPage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, ok := l.mu.slots.Peek(page)
	if !ok || now != at {
		return false
	}
	l.mu.slots.Remove(page)
	l.mu.free = append(l.mu.free, at.slot)
	return true
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
		memory = directio.Aligned(l.files.slotBytes)
	}
	l.writing <- freshPage{page: page, length: copy(memory, contents), memory: memory} // has room for all buffers
}

// write writes pages until the store is closed.
func (l *Local) write() {
	for p := range l.writing {
		if p.reached != nil {
			close(p.reached)
			l.fresh <- p.memory
			continue
		}
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
	l.mu.turn++
	return slotOfPage{slot, l.mu.turn, entry{p.page, uint32(p.length), crc32.Checksum(p.memory[:p.length], castagnoli)}}, true
}

// Close writes what waits to be written, if the drive takes it within a few seconds, and closes the store behind.
func (l *Local) Close() error {
	l.life.Lock()
	defer l.life.Unlock()
	if l.life.closed {
		return nil
	}
	l.life.closed = true
	close(l.writing)
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.writer.Wait()
	}()
	var err error
	select {
	case <-written:
	case <-time.After(localEnd):
		err = fmt.Errorf("cluster: pages of table %s on this machine: %w", l.Manifest().Name, errLocalWrites)
	}
	return errors.Join(err, l.files.close(), l.Store.Close())
}
