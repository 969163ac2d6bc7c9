package pages

import (
	"fmt"
	"os"
	"sync"
)

// Pages of up to shortRead bytes are read by shortRings rings, others by one, which keeps a drive busy with less of the processors.
const (
	shortRead  = 32 << 10
	shortRings = 4
)

// newEngine returns the engine of that name, or the best there is, for pages of so many bytes.
func newEngine(name string, depth, pageBytes int) (engine, error) {
	rings := 1
	if pageBytes <= shortRead {
		rings = min(shortRings, depth)
	}
	switch name {
	case "pread":
		return newPread(depth), nil
	case "uring":
		return newUring(depth, rings)
	case "":
		if e, err := newUring(depth, rings); err == nil {
			return e, nil
		}
		return newPread(depth), nil
	}
	return nil, fmt.Errorf("pages: engine (%q) must be pread or uring", name)
}

// pread is an engine of goroutines.
type pread struct {
	requests chan *request
	start    sync.Once
	depth    int
	workers  sync.WaitGroup
}

// A goroutine that has read finds its next request waiting.
func newPread(depth int) *pread { return &pread{requests: make(chan *request, depth), depth: depth} }

func (e *pread) name() string { return "pread" }

func (e *pread) submit(requests []*request, stop <-chan struct{}) {
	e.start.Do(func() {
		for range e.depth {
			e.workers.Go(e.work)
		}
	})
	for _, r := range requests {
		select {
		case e.requests <- r:
		case <-stop:
			return
		}
	}
}

func (e *pread) work() {
	for r := range e.requests {
		if r.begin() {
			r.finish(readFull(r.file, r.offset, r.into))
		}
	}
}

func (e *pread) close() {
	close(e.requests)
	e.workers.Wait()
}

// readFull fills the buffers, one after the other, unless the file ends or there is an error, and returns how many bytes it has read.
func readFull(f *os.File, offset int64, into [][]byte) (n int, err error) {
	for {
		m, err := preadv(f, offset+int64(n), into)
		n += m
		// A read that is not whole blocks has met the end of the file; direct reads cannot go on from there.
		if into = after(into, m); err != nil || m == 0 || m%block != 0 || len(into) == 0 {
			return n, err
		}
	}
}

// after returns the buffers without their first n bytes.
func after(into [][]byte, n int) [][]byte {
	for len(into) > 0 && n >= len(into[0]) {
		n -= len(into[0])
		into = into[1:]
	}
	if n > 0 {
		into = append([][]byte{into[0][n:]}, into[1:]...)
	}
	return into
}
