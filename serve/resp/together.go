package resp

import (
	"runtime"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/serve/catalog"
)

// together puts single GETs of several connections into one Gather. The first one is the leader: it lets connections run whose commands have arrived,
// which join it, then reads the rows of all and sends their replies. The others go on to wait for their clients' next commands meanwhile, so that none is
// woken for its reply. Nobody waits for commands that have not arrived.
//
// On the host backend a Gather of one row costs a quarter of a GET's processor time, and on a GPU it is a launch of its own.
type together struct {
	mu   sync.Mutex
	next *joint // that connections join; nil: the next one leads
}

// joint is the GETs of one Gather.
type joint struct {
	view    *catalog.View // that entries are of
	members []*conn
	entries []entry
	done    chan struct{} // closed when the members' replies are sent, or left to their connections
}

const (
	// mostTogether is the most GETs of one Gather.
	mostTogether = 128
	// togetherBytes is the longest row that is read together with others.
	togetherBytes = 16 << 10
)

// joins has a connection's only GET answered together with others'. It is false if the GET is to be answered as usual.
func (c *conn) joins() bool {
	s := c.server
	if len(c.waiting) != 1 || len(c.out) > 0 || c.tracking.on || s.o.TLS != nil || s.counters.connected.Load() < 2 || s.closing.Load() {
		return false
	}
	e := c.waiting[0]
	if e.row < 0 || c.gather.paged[e.table] || c.gather.rowBytes[e.table] > togetherBytes { // one row that a drive is slow with must not hold up others
		return false
	}
	t := &s.together
	t.mu.Lock()
	j, leads := t.next, t.next == nil
	if leads {
		j = &joint{view: c.gather.cache.view, done: make(chan struct{})}
		t.next = j
	} else if j.view != c.gather.cache.view {
		t.mu.Unlock()
		return false
	}
	j.members, j.entries = append(j.members, c), append(j.entries, e)
	if len(j.members) == mostTogether {
		t.next = nil
	}
	t.mu.Unlock()
	c.waiting, c.joined = c.waiting[:0], j
	if leads {
		runtime.Gosched()
		t.mu.Lock()
		if t.next == j {
			t.next = nil
		}
		t.mu.Unlock()
		c.lead(j)
		c.joined = nil
		c.flush() // what its client has not taken
	}
	return true
}

// lead answers the GETs of all members. Until done is closed, what they would reply with is the leader's.
func (c *conn) lead(j *joint) {
	ended := false
	defer func() {
		for _, m := range j.members {
			if !ended { // a panic: they will have no reply
				m.ahead.Conn.Close()
			}
		}
		close(j.done)
	}()
	begun, at := time.Now(), 0
	c.gather.part = 1 << 30
	c.gather.read(j.entries, func(row []byte, err error) {
		m := j.members[at]
		if at++; err != nil {
			m.fail("ERR " + err.Error())
		} else {
			m.bulk(row)
		}
	})
	end := c.tookGets(begun, j.entries)
	for _, m := range j.members {
		m.did(cmdGet, end)
		n, err := m.ahead.now.write(m.out)
		if m.out = append(m.out[:0], m.out[n:]...); len(m.out) > 0 && err == nil { // the connection sends the rest
			m.push()
		}
	}
	ended = true
}

// apart waits until nobody else answers the connection's commands.
func (c *conn) apart() {
	if c.joined != nil {
		<-c.joined.done
		c.joined = nil
	}
}
