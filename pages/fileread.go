package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// mergeBytes bounds a read of neighbouring pages: longer reads are no faster, and keep other reads waiting.
const mergeBytes = 1 << 20

// maxDepth bounds FileOptions.Depth.
const maxDepth = 1024

// closeWait is how long Close waits for reads that do not end. Tests set it.
var closeWait = 5 * time.Second

// request is one read of neighbouring pages.
type request struct {
	file   *os.File
	offset int64
	into   [][]byte // whole blocks each
	// reported is set by whoever calls end: the engine, or ReadPages when it no longer waits.
	reported atomic.Bool
	end      func(r *request, n int, err error)
	first    int // the caller's index of the first page
}

// begin reports whether the request is still wanted.
func (r *request) begin() bool { return !r.reported.Load() }

// finish says that n bytes have been read. An error may come with them; too few bytes without an error are the end of the file.
func (r *request) finish(n int, err error) {
	if !r.reported.Swap(true) {
		r.end(r, n, err)
	}
}

// engine performs requests. It calls finish for each, from any goroutine.
type engine interface {
	name() string
	// submit takes requests; it may wait while many are under way, until stop is closed, which leaves requests undone.
	submit(requests []*request, stop <-chan struct{})
	// close waits until nothing is under way. Nothing is submitted afterwards.
	close()
}

// ReadPages implements Store.
func (f *Files) ReadPages(ctx context.Context, pages []uint32, into [][]byte, done func(i int, page []byte, err error)) {
	f.mu.Lock()
	closed := f.mu.closed
	if !closed {
		f.reading.Add(1)
	}
	f.mu.Unlock()
	if closed {
		for i := range pages {
			done(i, nil, os.ErrClosed)
		}
		return
	}
	defer f.reading.Done()
	c := &fileCall{f: f, pages: pages, into: into, done: done, finished: make(chan struct{})}
	c.mu.requests = c.merge()
	if len(c.mu.requests) == 0 {
		return
	}
	c.left.Store(int64(len(c.mu.requests)))
	ctx, cancel := context.WithCancelCause(ctx)
	defer c.retries.Wait() // none is begun once c.finished is closed
	defer cancel(nil)
	defer context.AfterFunc(f.open, func() { cancel(os.ErrClosed) })()
	c.ctx = ctx
	f.engine.submit(c.mu.requests, ctx.Done())
	select {
	case <-c.finished:
		return
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.mu.ended = true
	c.mu.Unlock()
	for _, r := range c.mu.requests {
		if !r.reported.Swap(true) {
			c.fail(r, context.Cause(ctx))
		}
	}
	<-c.finished // calls of done that had begun
}

// fileCall is one call of ReadPages.
type fileCall struct {
	f        *Files
	pages    []uint32
	into     [][]byte
	done     func(i int, page []byte, err error)
	left     atomic.Int64 // requests
	finished chan struct{}
	ctx      context.Context
	retries  sync.WaitGroup // requests that are handed to the engine again
	mu       struct {
		sync.Mutex
		requests []*request
		ended    bool // no more are begun
	}
}

// fail fails the pages of a request. REQUIRES: the caller has set r.reported.
func (c *fileCall) fail(r *request, err error) {
	for j := range r.into {
		c.done(r.first+j, nil, err)
	}
	c.finish()
}

// again has requests read whose neighbours failed. The engine's goroutine, which calls it, does not wait.
func (c *fileCall) again(requests []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left.Add(int64(len(requests)))
	if c.mu.ended {
		for _, r := range requests {
			r.reported.Store(true)
			c.fail(r, context.Cause(c.ctx))
		}
		return
	}
	c.mu.requests = append(c.mu.requests, requests...)
	c.retries.Go(func() { c.f.engine.submit(requests, c.ctx.Done()) })
}

func (c *fileCall) finish() {
	if c.left.Add(-1) == 0 {
		close(c.finished)
	}
}

// merge makes the requests: one for each run of neighbouring pages.
func (c *fileCall) merge() []*request {
	var requests []*request
	var last *request
	var lastPage uint32
	var lastBytes int
	for i, page := range c.pages {
		if page >= c.f.manifest.Pages {
			last = nil
			c.done(i, nil, errNoPage)
			continue
		}
		p := c.f.places[page]
		if c.f.files[p.file] == nil {
			last = nil
			path := pageFile(c.f.folder, int(p.file))
			c.done(i, nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist})
			continue
		}
		n := directio.Blocks(c.f.index.length(page)) * block
		b := c.into[i]
		if len(b) < n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%block != 0 {
			b = directio.Aligned(n)
		}
		b = b[:n]
		if last != nil && page == lastPage+1 && last.file == c.f.files[p.file] && last.offset+int64(lastBytes) == int64(p.block)*block && lastBytes+n <= mergeBytes {
			last.into = append(last.into, b)
			lastBytes += n
		} else {
			last = &request{file: c.f.files[p.file], offset: int64(p.block) * block, into: [][]byte{b}, first: i, end: c.end}
			requests = append(requests, last)
			lastBytes = n
		}
		lastPage = page
	}
	return requests
}

// Errors of pages that cannot be read.
var (
	errNoPage   = errors.New("the table has no such page")
	errTooShort = fmt.Errorf("the file ends before the page does: %w", io.ErrUnexpectedEOF)
)

// end hands on what a request has read.
func (c *fileCall) end(r *request, n int, err error) {
	defer c.finish()
	if err == nil && n < r.bytes() {
		err = errTooShort
	}
	var again []*request
	at := r.offset
	for j, b := range r.into {
		length := c.f.index.length(c.pages[r.first+j])
		switch {
		case n >= length:
			c.done(r.first+j, b[:length], nil)
		case len(r.into) > 1 && !errors.Is(err, io.ErrUnexpectedEOF):
			// One bad block must not fail the neighbours.
			again = append(again, &request{file: r.file, offset: at, into: [][]byte{b}, first: r.first + j, end: c.end})
		default:
			c.done(r.first+j, nil, err)
		}
		n -= len(b)
		at += int64(len(b))
	}
	if len(again) > 0 {
		c.again(again)
	}
}

func (r *request) bytes() int {
	n := 0
	for _, b := range r.into {
		n += len(b)
	}
	return n
}

// within calls f and waits for it at most so long.
func within(d time.Duration, f func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(d):
		return errors.New("pages: reads that are under way do not end")
	}
}
