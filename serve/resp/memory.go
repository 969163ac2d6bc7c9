package resp

import (
	"fmt"
	"sync"
)

// freeBytes is what a connection may hold of each of its buffers without counting it: so short commands take no lock that connections share.
const freeBytes = 128 << 10

// errEvicted ends a connection that held more than any other when all together held too much.
type errEvicted struct{ held, most int64 }

func (e errEvicted) Error() string {
	return fmt.Sprintf("resp: connection held most (%d bytes) when commands and replies of all must hold at most %d", e.held, e.most)
}

// memory bounds what all connections hold for commands and replies. When that is too much, the connection that holds most is cut off. So a client
// that sends short commands is served, whatever others do.
type memory struct {
	most int64
	mu   struct {
		sync.Mutex
		used    int64
		holders map[*holder]struct{} // that hold something
	}
}

// holder is what one connection holds.
type holder struct {
	memory *memory
	cut    func() // closes the connection; it does not wait
	// memory.mu guards these.
	bytes   int64
	evicted error
}

func newMemory(most int64) *memory {
	m := &memory{most: most}
	m.mu.holders = map[*holder]struct{}{}
	return m
}

// take counts n more bytes, fewer if n is negative. After an error the connection must end.
func (h *holder) take(n int64) error {
	m := h.memory
	m.mu.Lock()
	if h.evicted != nil {
		m.mu.Unlock()
		return h.evicted
	}
	h.addLocked(n)
	var cut []*holder
	for m.mu.used > m.most {
		largest := h
		for other := range m.mu.holders {
			if other.bytes > largest.bytes {
				largest = other
			}
		}
		largest.evicted = errEvicted{largest.bytes, m.most}
		largest.addLocked(-largest.bytes)
		cut = append(cut, largest)
	}
	err := h.evicted
	m.mu.Unlock()
	for _, c := range cut {
		c.cut()
	}
	return err
}

// held returns what is counted of all connections.
func (m *memory) held() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.used
}

// addLocked counts bytes. REQUIRES: memory.mu is held.
func (h *holder) addLocked(n int64) {
	h.bytes += n
	h.memory.mu.used += n
	if h.bytes == 0 {
		delete(h.memory.mu.holders, h)
	} else {
		h.memory.mu.holders[h] = struct{}{}
	}
}

// end counts nothing of the connection any more, and returns why it was cut off, nil if it was not.
func (h *holder) end() error {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.addLocked(-h.bytes)
	return h.evicted
}

// account is one of the things that a connection holds.
type account struct {
	holder *holder
	bytes  int64
}

// set says how many bytes it has. What does not exceed freeBytes counts as nothing.
func (a *account) set(bytes int) error {
	n := max(0, int64(bytes)-freeBytes)
	if n == a.bytes {
		return nil
	}
	by := n - a.bytes
	a.bytes = n
	return a.holder.take(by)
}
