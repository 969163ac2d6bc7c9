package resp

import (
	"hash/maphash"
	"slices"
)

// transaction is what MULTI has queued. Commands of other clients run between those of an EXEC: rows have no reads that would need more.
type transaction struct {
	queued []queuedCommand
	bytes  int
	held   *account
	broken bool // a command could not be queued
}

type queuedCommand struct {
	cmd   *command
	names int
	args  [][]byte
}

// queues reports whether MULTI queues a command; the others run at once.
func (cmd *command) queues() bool {
	switch cmd.full {
	case "discard", "exec", "multi", "quit", "reset", "watch":
		return false
	}
	return true
}

// queue keeps a command. The error says that all connections hold too much.
func (t *transaction) queue(cmd *command, names int, args [][]byte) error {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	t.bytes += size + argBytes*(len(args)+1)
	if err := t.held.set(t.bytes); err != nil {
		return err
	}
	buf, kept := make([]byte, 0, size), make([][]byte, 0, len(args)) // the arguments are the reader's
	for _, a := range args {
		at := len(buf)
		buf = append(buf, a...)
		kept = append(kept, buf[at:len(buf):len(buf)])
	}
	t.queued = append(t.queued, queuedCommand{cmd, names, kept})
	return nil
}

func (c *conn) begin([][]byte) error {
	if c.multi != nil {
		c.multi.broken = true
		return failure("ERR MULTI calls can not be nested")
	}
	c.multi = &transaction{held: &c.queuedBytes}
	c.queued.Store(1)
	c.ok()
	return nil
}

// discardAll ends MULTI and WATCH.
func (c *conn) discardAll() {
	c.multi, c.watched = nil, nil
	c.queued.Store(0)
	c.queuedBytes.set(0)
}

func (c *conn) discard([][]byte) error {
	if c.multi == nil {
		return failure("ERR DISCARD without MULTI")
	}
	c.discardAll()
	c.ok()
	return nil
}

func (c *conn) exec([][]byte) error {
	t := c.multi
	if t == nil {
		return failure("ERR EXEC without MULTI")
	}
	watched := c.watched
	defer c.discardAll()
	c.multi = nil
	if t.broken {
		return failure("EXECABORT Transaction discarded because of previous errors.")
	}
	if len(watched) > 0 {
		if slices.ContainsFunc(t.queued, func(q queuedCommand) bool { return q.cmd.name == "tc.set" }) { // no other comes between the comparison and this one
			c.server.writing.Lock()
			defer c.server.writing.Unlock()
			c.writes = true
			defer func() { c.writes = false }()
		}
		same, err := c.unchanged(watched)
		if err != nil {
			return err
		}
		if !same {
			c.nullArray()
			return nil
		}
	}
	c.array(len(t.queued))
	for _, q := range t.queued {
		c.call(q.cmd, q.names, q.args)
		if len(c.out) >= flushBytes {
			c.settle()
			c.flush()
		}
		if c.failed != nil {
			return nil
		}
	}
	c.settle()
	return nil
}

// watchedRow is a row with what it was when WATCH looked at it.
type watchedRow struct {
	key string
	sum uint64 // 0: there was no such row
}

var watchSeed = maphash.MakeSeed()

// sums returns the rows of keys with sums of their bytes.
func (c *conn) sums(keys []string) (all []watchedRow, err error) {
	c.entries = c.entries[:0]
	for _, key := range keys {
		e, err := c.gather.key([]byte(key))
		if err != nil {
			return nil, err
		}
		c.entries = append(c.entries, e)
	}
	c.gather.part = c.server.partBytes()
	for done := 0; done < len(c.entries); {
		at := done
		done += c.gather.read(c.entries[done:], func(row []byte, readErr error) {
			w := watchedRow{key: keys[at]}
			if row != nil {
				w.sum = maphash.Bytes(watchSeed, row) | 1
			}
			if readErr != nil {
				err = readErr
			}
			all = append(all, w)
			at++
		})
	}
	return all, err
}

func (c *conn) watch(args [][]byte) error {
	if c.multi != nil {
		return failure("ERR WATCH inside MULTI is not allowed")
	}
	const most = 10_000
	if len(c.watched)+len(args) > most {
		return failure("ERR WATCH can watch at most 10000 keys")
	}
	var keys []string
	for _, key := range args {
		keys = append(keys, string(key))
	}
	rows, err := c.sums(keys)
	if err != nil {
		return tagged(err)
	}
	c.watched = append(c.watched, rows...)
	c.ok()
	return nil
}

func (c *conn) unwatch([][]byte) error {
	c.watched = nil
	c.ok()
	return nil
}

// unchanged reports whether rows have the bytes that WATCH saw.
func (c *conn) unchanged(watched []watchedRow) (bool, error) {
	var keys []string
	for _, w := range watched {
		keys = append(keys, w.key)
	}
	now, err := c.sums(keys)
	if err != nil {
		return false, tagged(err)
	}
	for i := range now {
		if now[i] != watched[i] {
			return false, nil
		}
	}
	return true, nil
}
