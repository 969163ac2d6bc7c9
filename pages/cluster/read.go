package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The states of a page that is read. Whoever moves it to claimed may write to its memory; whoever moves it to done calls the reader.
const (
	waiting uint32 = iota
	claimed        // a connection has its answer and is reading it
	done
)

// read is one call of ReadPages.
type read struct {
	s        *Store
	into     [][]byte
	done     func(i int, page []byte, err error)
	keys     []string
	states   []atomic.Uint32
	requests []atomic.Pointer[request] // that each page belongs to
	patience time.Time
}

// ReadPages implements pages.Store.
func (s *Store) ReadPages(ctx context.Context, numbers []uint32, into [][]byte, done func(i int, page []byte, err error)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := &read{s: s, into: into, patience: time.Now().Add(s.o.Patience),
		keys: make([]string, len(numbers)), states: make([]atomic.Uint32, len(numbers)), requests: make([]atomic.Pointer[request], len(numbers))}
	r.done = func(i int, page []byte, err error) {
		if err != nil {
			s.counts.failed.Add(1)
			if err = s.lost(err); s.life.Err() != nil {
				err = ErrClosed
			}
		}
		done(i, page, err)
	}
	all := make([]int, 0, len(numbers))
	for i, page := range numbers {
		switch {
		case s.mu.closed:
			r.done(i, nil, ErrClosed)
		case page >= s.manifest.Pages:
			r.done(i, nil, fmt.Errorf("cluster: page (%d) must be below %d", page, s.manifest.Pages))
		default:
			r.keys[i] = s.control.page(s.manifest.Generation, page)
			all = append(all, i)
		}
	}
	if !s.mu.closed {
		s.net.refreshSometimes(s.life, &s.attempts)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	var wg sync.WaitGroup
	r.start(ctx, &wg, all, 0)
	wg.Wait()
}

// start reads pages by requests of their own goroutines.
func (r *read) start(ctx context.Context, wg *sync.WaitGroup, which []int, hops int) {
	s := r.s
	each := max(1, s.o.RequestBytes/max(1, s.pageBytes()))
	t := s.net.now.Load()
	of := map[*shard][]int{}
	for _, i := range which {
		if shard := t.shard(slotOf(r.keys[i])); shard != nil {
			of[shard] = append(of[shard], i)
		} else {
			of[nil] = append(of[nil], i)
		}
	}
	for shard, which := range of {
		for len(which) > 0 {
			n := min(each, len(which))
			q := &request{read: r, shard: shard, which: which[:n], finished: make(chan struct{}), hops: hops}
			which = which[n:]
			q.left.Store(int64(n))
			for _, i := range q.which {
				r.requests[i].Store(q)
			}
			s.counts.requests.Add(1)
			wg.Go(func() {
				if q.shard == nil || q.hops > mostHops {
					q.runByClient(ctx)
					return
				}
				if moved := q.run(ctx); len(moved) > 0 {
					r.start(ctx, wg, moved, q.hops)
				}
			})
		}
	}
}

// deliver tells the reader of a page that this goroutine moved to done.
func (r *read) deliver(i int, page []byte, err error) {
	r.done(i, page, err)
	q := r.requests[i].Load()
	if q.left.Add(-1) == 0 {
		close(q.finished)
	}
}

// settle moves a page that nobody reads to done and tells the reader.
func (r *read) settle(i int, err error) {
	if r.states[i].CompareAndSwap(waiting, done) {
		r.deliver(i, nil, err)
	}
}

// give fails pages, also those that a connection is reading.
func (r *read) give(i int, err error) {
	if r.states[i].Swap(done) != done {
		r.deliver(i, nil, err)
	}
}

// mostHops is how often pages follow a topology that says where they moved to. After that, and while a slot is on its way from one node to
// another, the client follows the nodes' answers page by page.
const mostHops = 2

// runByClient reads pages by the client, which follows every redirection.
func (q *request) runByClient(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, q.patience)
	defer cancel()
	for _, i := range q.which {
		texts, err := q.s.control.get(ctx, []string{q.keys[i]})
		if err == nil && len(texts[0]) > len(q.into[i]) {
			err = fmt.Errorf("page (%d bytes) must have at most %d", len(texts[0]), len(q.into[i]))
		}
		if !q.states[i].CompareAndSwap(waiting, done) {
			continue
		}
		if err != nil {
			q.deliver(i, nil, err)
			continue
		}
		q.deliver(i, q.into[i][:copy(q.into[i], texts[0])], nil)
	}
}

// pageBytes is the mean length of a page.
func (s *Store) pageBytes() int { return int(s.manifest.PageTotal / max(1, int64(s.manifest.Pages))) }
