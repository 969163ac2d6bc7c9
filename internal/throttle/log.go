// Package throttle slows down what strangers can repeat at no cost to them: failed logins, and the records that they cause in the log.
//
// All types are safe for concurrent use, and their zero value is ready.
package throttle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logInterval is the least time between two records of one Log.
const logInterval = 10 * time.Second

// Log writes a record at most every 10 seconds, and counts the others. The next record has their number as "omitted".
type Log struct {
	mu      sync.Mutex
	last    time.Time
	omitted int
}

// Record writes a record, or counts it.
func (l *Log) Record(to *slog.Logger, level slog.Level, text string, attrs ...slog.Attr) {
	l.mu.Lock()
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= logInterval {
		l.last = now
	} else {
		l.omitted++
		l.mu.Unlock()
		return
	}
	if l.omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", l.omitted))
	}
	l.omitted = 0
	l.mu.Unlock()
	to.LogAttrs(context.Background(), level, text, attrs...)
}
