package observe

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/hashmap"
)

// Withdrawn remembers when rows were withdrawn, how long they had been cached, and by what. It is a table by the keys' hashes in which
// later rows overwrite earlier ones: bounded, and nearly exact for the last tenth of its size. It is safe for concurrent use.
type Withdrawn struct {
	sync.Mutex
	rows    int64        // of all tables, 0 if not known
	records []Withdrawal // nil until the first; a power of two
}

// SetRows says how many rows there can be. It is called before the first Add, or never.
func (e *Withdrawn) SetRows(rows int64) { e.rows = rows }

// evictionRecords is how many rows Withdrawn remembers at most: 1.5 MiB.
const evictionRecords = 1 << 15

// Withdrawal says when a row was withdrawn. The zero value is none.
type Withdrawal struct {
	Key uint64
	At  time.Time
	Age time.Duration // since it was admitted, or since the cache was filled
	By  *Cause        // nil: not known
}

// Cause is an operation that withdrew rows.
type Cause struct {
	What string
	Span trace.SpanContext // the zero value if it was not sampled
}

// unsampledCauses are operations without a span, by what they are.
var unsampledCauses = map[string]*Cause{
	"refresh": {What: "refresh"}, "update": {What: "update"}, "invalidate": {What: "invalidate"},
}

// LossOfDevice is the cause of withdrawing rows that only a lost device had.
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
		for e.rows > 0 && int64(n) >= 64*e.rows { // few rows share a record
			n /= 2
		}
		e.records = make([]Withdrawal, n)
	}
	*e.at(w.Key) = w
}

// Find returns when a row was withdrawn last, if that is remembered.
func (e *Withdrawn) Find(key uint64) (w Withdrawal, ok bool) {
	e.Lock()
	defer e.Unlock()
	return e.findLocked(key)
}

// FindAll appends what Find returns of each row of a table, the zero value where that is not remembered.
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
