package device

import (
	"fmt"
	"sync"
)

// Limiter is a Device whose Alloc can be bounded.
type Limiter interface {
	// Limit bounds the memory that Alloc has handed out and Free has not taken back to so many bytes, from now on; 0: no bound. Beyond it, Alloc returns an
	// error that wraps ErrOutOfMemory and says whose limit it is.
	Limit(bytes int64, whose string)
}

// Quota is what a backend implements Limiter with. The zero value bounds nothing. It is safe for concurrent use.
type Quota struct {
	mu    sync.Mutex
	most  int64 // 0: no bound
	whose string
	taken int64
}

// Limit implements Limiter.
func (q *Quota) Limit(bytes int64, whose string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most, q.whose = bytes, whose
}

// Take counts memory that is about to be allocated, unless that would be too much.
func (q *Quota) Take(bytes int64, what string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.most > 0 && bytes > q.most-q.taken {
		return fmt.Errorf("device: allocation for %s (%d bytes) must be within %s (%d bytes, of which %d are taken): %w", what, bytes, q.whose, q.most, q.taken, ErrOutOfMemory)
	}
	q.taken += bytes
	return nil
}

// Give counts memory that was taken and is free again.
func (q *Quota) Give(bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken -= bytes
}
