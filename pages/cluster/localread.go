package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// localRead is the part of one call of Local.ReadPages that the folder has.
type localRead struct {
	l        *Local
	numbers  []uint32
	into     [][]byte
	done     func(i int, page []byte, err error)
	which    []int        // indices of the pages
	places   []slotOfPage // of which
	next     atomic.Int64
	taken    []atomic.Bool // of which: whoever sets it says what becomes of the page
	left     atomic.Int64  // pages of which that nobody has dealt with
	finished chan struct{} // left is 0
	mu       sync.Mutex
	rest     []int // indices of pages that the store behind is to be asked for
}

// run reads the pages, and returns the indices of those that the store behind is to be asked for: because they are damaged, because other pages have
// taken their places, or because the drive does not answer. Readers that hang have memory of their own: whoever gets a page gets a copy.
func (r *localRead) run(ctx context.Context) []int {
	if len(r.which) == 0 {
		return nil
	}
	r.taken = make([]atomic.Bool, len(r.which))
	r.left.Store(int64(len(r.which)))
	limited, cancel := context.WithTimeout(ctx, r.l.wait)
	defer cancel()
	for range min(localReaders, len(r.which)) {
		go r.work(limited)
	}
	select {
	case <-r.finished:
		return r.rest
	case <-limited.Done():
	}
	late := 0
	for n, i := range r.which {
		if r.taken[n].Swap(true) {
			continue
		}
		if err := ctx.Err(); err != nil {
			r.done(i, nil, err)
		} else {
			late++
			r.again(i)
		}
		r.end()
	}
	<-r.finished // copies that have begun
	if late > 0 {
		r.l.rest(late)
	}
	return r.rest
}

// work reads pages until there are none, or until ctx ends.
func (r *localRead) work(ctx context.Context) {
	select {
	case r.l.reading <- struct{}{}:
		defer func() { <-r.l.reading }()
	case <-ctx.Done():
		return
	}
	memory, _ := r.l.memory.Get().(*[]byte)
	if memory == nil {
		b := directio.Aligned(r.l.files.slotBytes)
		memory = &b
	}
	defer r.l.memory.Put(memory)
	for ctx.Err() == nil {
		n := int(r.next.Add(1)) - 1
		if n >= len(r.which) {
			return
		}
		i, at := r.which[n], r.places[n]
		sound := r.l.files.read(at.slot, at.entry, *memory)
		if r.taken[n].Swap(true) {
			return // too late
		}
		switch {
		case sound:
			r.l.counts.hits.Add(1)
			r.done(i, r.into[i][:copy(r.into[i], (*memory)[:at.length])], nil)
		case r.l.forget(r.numbers[i], at):
			r.l.counts.damaged.Add(1)
			r.again(i)
		default: // another page was written there meanwhile
			r.l.counts.evicted.Add(1)
			r.again(i)
		}
		r.end()
	}
}

func (r *localRead) again(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, i)
}

func (r *localRead) end() {
	if r.left.Add(-1) == 0 {
		close(r.finished)
	}
}

// rest leaves the folder alone for a while, as so many pages did not arrive in time.
func (l *Local) rest(pages int) {
	l.counts.late.Add(int64(pages))
	now := time.Now()
	if was := l.alone.Swap(now.Add(localRest).UnixNano()); was < now.UnixNano() {
		l.log.Warn("cluster: the drive with the pages that are kept on this machine does not answer and is left alone for a while",
			slog.String("table", l.Manifest().Name), slog.Int("pages", pages), slog.Duration("waited", l.wait), slog.Duration("for", localRest))
	}
}
