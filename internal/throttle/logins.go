package throttle

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// forget is how long an address is remembered after its last failure.
	forget = time.Minute
	// longest is the longest delay of one failure. The first one takes 2 ms, and each further one twice as long.
	longest = time.Second
	// atATime is how many failed logins of one address are delayed at a time; others wait. It bounds answers to guesses over many connections to as many a second.
	atATime = 16
	// mostAddresses is how many addresses are remembered. Further ones share one place.
	mostAddresses = 4096
)

// Logins delays failed logins, by the address that they come from. A correct password is never delayed: many clients may share the address of one that guesses.
type Logins struct {
	failed atomic.Int64
	mu     struct {
		sync.Mutex
		from   map[netip.Prefix]*origin
		others *origin   // of addresses beyond mostAddresses
		swept  time.Time // when addresses were forgotten last
	}
}

// origin is what is known of an address.
type origin struct {
	places chan struct{} // has an element for each login that is delayed
	// Logins.mu guards these.
	users    int // logins that are delayed or wait for a place
	failures int // in a row, with less than forget between them
	last     time.Time
}

// Failed returns how many logins have failed.
func (l *Logins) Failed() int64 { return l.failed.Load() }

// Try returns what check says of a login from an address with a port. If that is false, it returns after a delay, or when ctx ends.
func (l *Logins) Try(ctx context.Context, from string, check func() bool) bool {
	if check() {
		return true
	}
	l.failed.Add(1)
	o := l.begin(prefix(from))
	defer l.end(o)
	delay := l.fail(o)
	select {
	case o.places <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-o.places }()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// prefix returns whom an address stands for: of IPv6, a network of 64 bits, all of which one machine may use.
func prefix(from string) netip.Prefix {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the bits are of its kind
	return p
}

// begin returns the origin of an address, for end.
func (l *Logins) begin(from netip.Prefix) *origin {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.mu.from[from]
	if o == nil {
		o = l.addLocked(from)
	}
	o.users++
	return o
}

func (l *Logins) addLocked(from netip.Prefix) *origin {
	if l.mu.from == nil {
		l.mu.from = map[netip.Prefix]*origin{}
		l.mu.others = &origin{places: make(chan struct{}, atATime)}
	}
	if now := time.Now(); len(l.mu.from) >= mostAddresses && now.Sub(l.mu.swept) > time.Second {
		l.mu.swept = now
		for p, o := range l.mu.from {
			if o.users == 0 && now.Sub(o.last) > forget {
				delete(l.mu.from, p)
			}
		}
	}
	if len(l.mu.from) >= mostAddresses {
		return l.mu.others
	}
	o := &origin{places: make(chan struct{}, atATime)}
	l.mu.from[from] = o
	return o
}

func (l *Logins) end(o *origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.users--
}

// fail counts a failure and returns its delay.
func (l *Logins) fail(o *origin) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(o.last) > forget {
		o.failures = 0
	}
	o.last = now
	o.failures++
	return min(longest, time.Millisecond<<min(o.failures, 20))
}
