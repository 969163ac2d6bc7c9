package resp

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// aheadAfter is how long a write waits for the client before what the client sends is read ahead.
	aheadAfter = 5 * time.Millisecond
	// aheadChunk is how many bytes are read ahead at a time.
	aheadChunk = 64 << 10
)

// ahead is a connection that goes on reading while a write waits for the client. Clients send a whole pipeline before they take its first reply: if
// the server then did not read, both would wait for ever. What is read ahead are commands, which are shorter than their replies.
//
// One goroutine reads and writes. Deadlines and Close are safe for concurrent use. The bytes are those of TLS where the connection has it.
type ahead struct {
	net.Conn
	writeTime time.Duration // the most that a write waits
	limit     atomic.Int64  // the most bytes that are read ahead
	account   account       // of chunks
	writing   sync.Mutex    // the goroutine's writes, and the last record of TLS, which Close writes
	now       writer        // what the socket takes at once
	timer     *time.Timer   // calls read
	ended     chan struct{}

	mu struct {
		sync.Mutex
		deadline    time.Time // of reads
		interrupted bool      // reads end at once
		writeBy     time.Time // deadline of writes, if it is before the end of writeTime
	}
	// The goroutine uses these, or while it waits in Write, read.
	chunks [][]byte
	at     int // bytes of the first chunk that have been used
	bytes  int // in chunks
}

func newAhead(c net.Conn, h *holder, writeTime time.Duration) *ahead {
	a := &ahead{Conn: c, writeTime: writeTime, account: account{holder: h}, now: newWriter(c), ended: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, a.read)
	a.timer.Stop()
	return a
}

// Read implements net.Conn.
func (a *ahead) Read(b []byte) (int, error) {
	if len(a.chunks) == 0 {
		return a.Conn.Read(b)
	}
	n := copy(b, a.chunks[0][a.at:])
	a.at += n
	a.bytes -= n
	if a.at == len(a.chunks[0]) {
		a.chunks[0] = nil
		a.chunks, a.at = a.chunks[1:], 0
		if len(a.chunks) == 0 {
			a.chunks = nil
		}
		if err := a.count(0); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Write implements net.Conn.
func (a *ahead) Write(b []byte) (int, error) {
	a.writing.Lock()
	defer a.writing.Unlock()
	n, err := a.now.write(b)
	if err != nil || n == len(b) {
		return n, err
	}
	a.Conn.SetWriteDeadline(a.writeEnd())
	a.timer.Reset(aheadAfter)
	rest, err := a.Conn.Write(b[n:])
	if !a.timer.Stop() {
		a.interrupt(true)
		<-a.ended
		a.interrupt(false)
	}
	a.Conn.SetWriteDeadline(time.Time{})
	return n + rest, err
}

// writeEnd returns until when a write may wait.
func (a *ahead) writeEnd() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := time.Now().Add(a.writeTime)
	if !a.mu.writeBy.IsZero() && a.mu.writeBy.Before(end) {
		return a.mu.writeBy
	}
	return end
}

// SetWriteDeadline implements net.Conn, for writes that begin later. TLS uses it, so that Close does not wait for long.
func (a *ahead) SetWriteDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.writeBy = t
	return nil
}

// read reads ahead until Write has ended, the limit is reached, or the connection ends, which the next Read finds, too.
func (a *ahead) read() {
	defer func() { a.ended <- struct{}{} }()
	for int64(a.bytes) < a.limit.Load() {
		last := len(a.chunks) - 1
		if last < 0 || len(a.chunks[last]) == aheadChunk {
			if err := a.count(1); err != nil {
				a.Conn.Close() // Write need not wait
				return
			}
			a.chunks = append(a.chunks, make([]byte, 0, aheadChunk))
			last++
		}
		chunk := a.chunks[last]
		n, err := a.Conn.Read(chunk[len(chunk):aheadChunk])
		a.chunks[last] = chunk[:len(chunk)+n]
		a.bytes += n
		if err != nil && !(errors.Is(err, os.ErrDeadlineExceeded) && a.prolong()) {
			break
		}
	}
	if last := len(a.chunks) - 1; last >= 0 && len(a.chunks[last]) == 0 { // Read returns no empty chunks
		a.chunks = a.chunks[:last]
		a.count(0)
	}
}

// prolong has reads go on after their deadline, until interrupt restores it: a client whose reply waits is not idle. It is false if reads are to end.
func (a *ahead) prolong() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.interrupted || a.mu.deadline.Equal(past) {
		return false
	}
	return a.Conn.SetReadDeadline(time.Time{}) == nil
}

// count accounts for the chunks, and so many more.
func (a *ahead) count(more int) error { return a.account.set((len(a.chunks) + more) * aheadChunk) }

// interrupt has reads end at once, or again at their deadline.
func (a *ahead) interrupt(now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.interrupted = now
	if now {
		a.Conn.SetReadDeadline(past)
	} else {
		a.Conn.SetReadDeadline(a.mu.deadline)
	}
}

// SetReadDeadline implements net.Conn.
func (a *ahead) SetReadDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.deadline = t
	if a.mu.interrupted {
		return nil
	}
	return a.Conn.SetReadDeadline(t)
}
