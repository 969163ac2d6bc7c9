package cache

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/hashmap"
)

// evictions remembers of the rows withdrawn last when that was, how long they had been cached, and by what. It is a table by the
// keys' hashes in which later rows overwrite earlier ones: bounded, and nearly exact for the last tenth of its size.
type evictions struct {
	sync.Mutex
	records []withdrawal // nil until the first
}

// evictionRecords is how many rows evictions remembers at most: 1.5 MiB.
const evictionRecords = 1 << 15

// withdrawal says when a row was withdrawn. The zero value is none.
type withdrawal struct {
	key uint64
	at  time.Time
	age time.Duration // since it was admitted, or since the cache was filled
	by  *cause        // nil: not known
}

// cause is an operation that withdrew rows.
type cause struct {
	what string
	span trace.SpanContext // the zero value if it was not sampled
}

// unsampledCauses are operations without a span, by what they are.
var unsampledCauses = map[string]*cause{
	"refresh": {what: "refresh"}, "update": {what: "update"}, "invalidate": {what: "invalidate"},
}

// lossOfDevice withdraws what only the lost device had.
var lossOfDevice = &cause{what: "device_loss"}

func (e *evictions) at(key uint64) *withdrawal {
	return &e.records[hashmap.Hash(key)&(evictionRecords-1)]
}

func (e *evictions) add(w withdrawal) {
	e.Lock()
	defer e.Unlock()
	if e.records == nil {
		e.records = make([]withdrawal, evictionRecords)
	}
	*e.at(w.key) = w
}

// find returns when a row was withdrawn last, if that is remembered.
func (e *evictions) find(key uint64) (w withdrawal, ok bool) {
	e.Lock()
	defer e.Unlock()
	return e.findLocked(key)
}

// findAll appends what find returns of each row of a table, the zero value where that is not remembered.
func (e *evictions) findAll(table int, rows []int64, all []withdrawal) []withdrawal {
	e.Lock()
	defer e.Unlock()
	for _, row := range rows {
		w, _ := e.findLocked(hashmap.Key(table, row))
		all = append(all, w)
	}
	return all
}

func (e *evictions) findLocked(key uint64) (w withdrawal, ok bool) {
	if e.records == nil {
		return w, false
	}
	if w = *e.at(key); w.key != key || w.at.IsZero() {
		return withdrawal{}, false
	}
	return w, true
}
