package resp

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Counters are what a server has counted, for metrics.
type Counters struct {
	// Connections have been served; Clients are connected now, Tracking of them with CLIENT TRACKING on. Memory is what long commands and replies of all take now, in bytes.
	Connections, Clients, Tracking, Memory int64
	// Unknown are commands without a counter of their own, because there is no such command.
	Unknown int64
	// FailedLogins have a wrong user or password. ChangedRows were changed by TC.SET.
	FailedLogins, ChangedRows int64
	// Cut are connections that the server refused or ended, by reason.
	Cut map[string]int64
	// Commands has those that have been called or rejected, by name; subcommands as client|list.
	Commands map[string]CommandCounters
}

// LatencyBuckets is the number of buckets of CommandCounters: bucket i counts calls that took at most 2^i µs, and more than 2^(i-1); the last one also those that took longer.
const LatencyBuckets = 24

// CommandCounters are those of one command.
type CommandCounters struct {
	// Calls have run, Failed of them with an error. Rejected were not run: a wrong number of arguments, or no right to the command.
	Calls, Failed, Rejected int64
	// Time is what all calls took together. Pipelined GETs, which become one Gather, take that time together.
	Time time.Duration
	// Latency has calls by how long their client waited for the server; each of pipelined GETs waits for all.
	Latency [LatencyBuckets]int64
}

type counters struct {
	connections, connected, unknown, changed atomic.Int64
	of                                       []commandCounters // by command.id
}

type commandCounters struct {
	calls, failed, rejected, nanoseconds atomic.Int64
	latency                              [LatencyBuckets]atomic.Int64
}

// reject counts a command that is not run; nil: there is none of the name.
func (k *counters) reject(cmd *command) {
	if cmd == nil {
		k.unknown.Add(1)
	} else {
		k.of[cmd.id].rejected.Add(1)
	}
}

// commands returns how many commands were replied to.
func (k *counters) commands() int64 {
	n := k.unknown.Load()
	for i := range k.of {
		n += k.of[i].calls.Load() + k.of[i].rejected.Load()
	}
	return n
}

// add counts n calls of a command that took some time together.
func (k *counters) add(cmd *command, n int64, took time.Duration) {
	of := &k.of[cmd.id]
	of.calls.Add(n)
	of.nanoseconds.Add(int64(took))
	of.latency[min(LatencyBuckets-1, bits.Len64(uint64(max(0, (took-1)/time.Microsecond))))].Add(n)
}

// did notes the connection's last command.
func (c *conn) did(cmd *command, end time.Time) {
	c.seen.Store(end.UnixNano())
	if c.last.Load() != cmd {
		c.last.Store(cmd)
	}
}

// tookGets counts GETs that began together and end now.
func (c *conn) tookGets(begun time.Time, entries []entry) {
	end := time.Now()
	took := end.Sub(begun)
	c.server.counters.add(cmdGet, int64(len(entries)), took)
	c.did(cmdGet, end)
	if took >= slowTime {
		args := [][]byte{[]byte("get")}
		for _, e := range entries {
			args = append(args, fmt.Appendf(nil, "%s:%d", c.gather.names[e.table], e.row))
		}
		c.server.slow.add(c, begun, took, args)
	}
}

// took counts a command that ends now. args are what the slow log keeps.
func (c *conn) took(cmd *command, begun time.Time, args [][]byte) {
	end := time.Now()
	took := end.Sub(begun)
	c.server.counters.add(cmd, 1, took)
	c.did(cmd, end)
	if took >= slowTime && cmd.right != anybody { // those have passwords
		c.server.slow.add(c, begun, took, args)
	}
}

// Counters returns what the server has counted.
func (s *Server) Counters() Counters {
	all := Counters{
		Connections: s.counters.connections.Load(), Clients: s.counters.connected.Load(), Tracking: s.invalidation.tracking(), Memory: s.memory.held(), Unknown: s.counters.unknown.Load(),
		FailedLogins: s.logins.Failed(), ChangedRows: s.counters.changed.Load(), Cut: map[string]int64{}, Commands: map[string]CommandCounters{},
	}
	for r, name := range reasonNames {
		all.Cut[name] = s.endings.of(reason(r))
	}
	for id, name := range allNames {
		if one := s.counters.of[id].read(); one.Calls+one.Rejected > 0 {
			all.Commands[name] = one
		}
	}
	return all
}

func (k *commandCounters) read() CommandCounters {
	one := CommandCounters{Calls: k.calls.Load(), Failed: k.failed.Load(), Rejected: k.rejected.Load(), Time: time.Duration(k.nanoseconds.Load())}
	for i := range k.latency {
		one.Latency[i] = k.latency[i].Load()
	}
	return one
}

// latencyHistogram is LATENCY HISTOGRAM.
func (c *conn) latencyHistogram(names [][]byte) error {
	all := c.server.Counters().Commands
	var asked []string
	for name, one := range all {
		if one.Calls > 0 && (len(names) == 0 || slices.ContainsFunc(names, func(n []byte) bool {
			of, _, _ := strings.Cut(name, "|")
			return strings.EqualFold(cut(n), of) || strings.EqualFold(cut(n), name)
		})) {
			asked = append(asked, name)
		}
	}
	slices.Sort(asked)
	c.dict(len(asked))
	for _, name := range asked {
		one := all[name]
		c.text(name)
		c.dict(2)
		c.text("calls")
		c.integer(one.Calls)
		c.text("histogram_usec")
		filled := 0
		for _, n := range one.Latency {
			if n > 0 {
				filled++
			}
		}
		c.dict(filled)
		sum := int64(0)
		for i, n := range one.Latency {
			if sum += n; n > 0 {
				c.integer(1 << i)
				c.integer(sum)
			}
		}
	}
	return nil
}

const (
	// slowTime is how long a command takes at least to be in the slow log.
	slowTime = 10 * time.Millisecond
	// slowMost is how many commands the slow log keeps, slowArgs of the arguments of each, slowBytes of each argument.
	slowMost, slowArgs, slowBytes = 128, 32, 128
)

// slowLog keeps the last commands that took long.
type slowLog struct {
	mu   sync.Mutex
	next int64
	kept []slowEntry // the last one first
}

type slowEntry struct {
	id               int64
	at               time.Time
	took             time.Duration
	args             []string
	from, name, user string
}

func (l *slowLog) add(c *conn, at time.Time, took time.Duration, args [][]byte) {
	e := slowEntry{at: at, took: took, from: c.net.RemoteAddr().String(), name: c.who.Load().name, user: c.user.name()}
	for i, a := range args {
		if i == slowArgs-1 && len(args) > slowArgs {
			e.args = append(e.args, fmt.Sprintf("... (%d more arguments)", len(args)-i))
			break
		}
		text := string(a[:min(len(a), slowBytes)])
		if more := len(a) - len(text); more > 0 {
			text += fmt.Sprintf("... (%d more bytes)", more)
		}
		e.args = append(e.args, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.kept = slices.Insert(l.kept, 0, e)
	l.kept = l.kept[:min(len(l.kept), slowMost)]
}

func (l *slowLog) entries() []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kept)
}

func (l *slowLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = nil
}

func (c *conn) slowlogGet(args [][]byte) error {
	most := int64(10)
	if len(args) > 0 {
		var ok bool
		if most, ok = number(args[0]); !ok && string(args[0]) == "-1" {
			most, ok = slowMost, true
		} else if !ok {
			return errInteger
		}
	}
	all := slices.DeleteFunc(c.server.slow.entries(), func(e slowEntry) bool { return !c.user.Admin && e.user != c.user.Name })
	all = all[:min(int64(len(all)), most)]
	c.array(len(all))
	for _, e := range all {
		c.array(6)
		c.integer(e.id)
		c.integer(e.at.Unix())
		c.integer(e.took.Microseconds())
		c.array(len(e.args))
		for _, a := range e.args {
			c.text(a)
		}
		c.text(e.from)
		c.text(e.name)
	}
	return nil
}
