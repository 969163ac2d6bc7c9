package observe

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/hashmap"
)

// Withdrawn records when rows were withdrawn, by which operation, and how long they had been cached. It is a table indexed by the keys'
// hashes, in which later rows overwrite earlier ones. Of the latest rows, as many as a tenth of its length, it has nearly all. It is safe
// for concurrent use.
type Withdrawn struct {
	sync.Mutex
	rows    int64        // most rows of all tables, 0 if not known
	records []Withdrawal // nil before the first Add; the length is a power of two
}

// SetRows sets the most rows of all tables, which bounds the memory. It must be called before the first Add, if at all.
func (e *Withdrawn) SetRows(rows int64) { e.rows = rows }

// evictionRecords is the largest length of Withdrawn.records, which then take 1.5 MiB.
const evictionRecords = 1 << 15

// Withdrawal is the record of a row's withdrawal. The zero value stands for none.
type Withdrawal struct {
	Key uint64
	At  time.Time
	Age time.Duration // since it was admitted, or since the cache was filled
	By  *Cause        // nil if not known
}

// Cause is an operation that withdrew rows.
type Cause struct {
	What string
	Span trace.SpanContext // the zero value if it was not sampled
}

// unsampledCauses are the causes for operations without a sampled span, by name.
var unsampledCauses = map[string]*Cause{
	"refresh": {What: "refresh"}, "update": {What: "update"}, "invalidate": {What: "invalidate"},
}

// LossOfDevice is the cause of the withdrawal of rows that only a lost device had.
var LossOfDevice = &Cause{What: "device_loss"}

func (e *Withdrawn) at(key uint64) *Withdrawal {
	return &e.records[hashmap.Hash(key)&uint64(len(e.records)-1)]
}

// Add records a withdrawal.
func (e *Withdrawn) Add(w Withdrawal) {
	e.Lock()
	defer e.Unlock()
	if e.records == nil {
		n := evictionRecords
		for e.rows > 0 && int64(n) >= 64*e.rows { // still long enough that few rows share a record
			n /= 2
		}
		e.records = make([]Withdrawal, n)
	}
	*e.at(w.Key) = w
}

// Find returns the last withdrawal of a row, if it is recorded.
func (e *Withdrawn) Find(key uint64) (w Withdrawal, ok bool) {
	e.Lock()
	defer e.Unlock()
	return e.findLocked(key)
}

// FindAll appends the last withdrawal of each row of a table to all. It appends the zero value if none is recorded.
func (e *Withdrawn) FindAll(table int, rows []int64, all []Withdrawal) []Withdrawal {
	e.Lock()
	defer e.Unlock()
	for _, row := range rows {
		w, _ := e.findLocked(hashmap.Key(table, row))
		all = append(all, w)
	}
	return all
}

func (e *Withdrawn) findLocked(key uint64) (w Withdrawal, ok bool) {
	if e.records == nil {
		return w, false
	}
	if w = *e.at(key); w.Key != key || w.At.IsZero() {
		return Withdrawal{}, false
	}
	return w, true
}
