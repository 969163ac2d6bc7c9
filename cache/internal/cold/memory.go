package cold

import (
	"fmt"
	"sync"
)

// memoryLog is a Log in memory. It is not durable.
type memoryLog struct {
	most int64
	mu   sync.RWMutex
	rows map[int64]logged
	size int64 // of rows, as limited by most, once all that were appended are applied
	took int64
}

type logged struct {
	stored     []byte // nil until a version is applied
	compressed bool
	appended   int // bytes of the version that was appended last, which may not be applied yet
}

// NewMemoryLog returns a log that keeps at most `most` bytes of rows in memory, and refuses more. It is not durable.
func NewMemoryLog(most int64) Log { return &memoryLog{most: most, rows: map[int64]logged{}} }

// loggedBytes is what a row of the log takes beside its bytes.
const loggedBytes = 64

func (l *memoryLog) Append(rows []int64, stored [][]byte, compressed []bool) (sync func() error, apply func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := int64(0)
	for i, row := range rows {
		more += int64(len(stored[i]))
		if old, ok := l.rows[row]; ok {
			more -= int64(old.appended)
		} else {
			more += loggedBytes
		}
	}
	if l.size+more > l.most {
		return nil, nil, fmt.Errorf("cache: updated rows (%d bytes) must fit in %d bytes of memory: the table's pages have no delta log", l.size+more, l.most)
	}
	l.size += more
	for i, row := range rows {
		r := l.rows[row]
		r.appended = len(stored[i])
		l.rows[row] = r
		l.took += int64(len(stored[i]))
	}
	return func() error { return nil }, func() { l.apply(rows, stored, compressed) }, nil
}

func (l *memoryLog) apply(rows []int64, stored [][]byte, compressed []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, row := range rows {
		l.rows[row] = logged{append([]byte{}, stored[i]...), compressed[i], l.rows[row].appended}
	}
}

func (l *memoryLog) Find(row int64) (stored int, compressed, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.rows[row]
	return len(r.stored), r.compressed, r.stored != nil
}

func (l *memoryLog) Get(row int64) (stored []byte, compressed, ok bool, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.rows[row]
	return r.stored, r.compressed, r.stored != nil, nil
}

func (l *memoryLog) Bytes() (taken, written int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.took, l.took
}

// Merges implements Log: nothing is merged.
func (l *memoryLog) Merges() (failed int64, waiting bool) { return 0, false }

// Held implements Log.
func (l *memoryLog) Held() (rows, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(len(l.rows)), l.size
}

func (l *memoryLog) Close() error { return nil }
