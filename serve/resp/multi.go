package resp

import (
	"hash/maphash"
	"strconv"
)

// transaction is what MULTI has queued. EXEC is not atomic: commands of other clients run between its own.
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

// changes reports whether the command is a TC.SET of a table that the connection's user may change.
func (c *conn) changes(q queuedCommand) bool {
	if q.cmd.name != "tc.set" {
		return false
	}
	_, err := c.gather.find(q.args[1], writeRows)
	return err == nil
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
		return failure("ERR MULTI calls can not be nested")
	}
	c.multi = &transaction{held: &c.queuedBytes}
	c.queued.Store(1)
	c.ok()
	return nil
}

// discardAll ends MULTI and WATCH.
func (c *conn) discardAll() {
	c.multi = nil
	c.forget()
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
	defer c.discardAll()
	c.multi = nil
	if t.broken {
		return failure("EXECABORT Transaction discarded because of previous errors.")
	}
	change := -1 // the last command that changes rows
	defer c.endWriting()
	if len(c.watched) > 0 {
		for i, q := range t.queued {
			if c.changes(q) {
				change = i
			}
		}
		if change >= 0 { // no other TC.SET comes between the comparison and this one's
			c.flush()
			c.server.writing.Lock()
			c.writes = true
		}
		same, err := c.unchanged()
		if err != nil {
			return tagged(err)
		}
		if !same {
			c.nullArray()
			return nil
		}
	}
	c.array(len(t.queued))
	for i, q := range t.queued {
		if err := c.permits(q.cmd, q.args); err != nil { // the user's rights may have changed since
			c.settle()
			c.server.counters.reject(q.cmd)
			c.fail(err.Error())
		} else {
			c.call(q.cmd, q.names, q.args)
		}
		if i == change {
			c.endWriting()
		}
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

// endWriting lets other connections change rows again.
func (c *conn) endWriting() {
	if c.writes {
		c.writes = false
		c.server.writing.Unlock()
	}
}

// watchedRow is a row with what it was when WATCH looked at it.
type watchedRow struct {
	table int // its number in the catalog
	row   int64
	sum   uint64 // 0: there was no such row
}

// watchedBytes is about what a watchedRow takes, while a slice of them grows.
const watchedBytes = 48

var watchSeed = maphash.MakeSeed()

// sums calls found with the sum of each row's bytes, in order.
func (c *conn) sums(rows []watchedRow, found func(i int, sum uint64)) (err error) {
	c.entries = c.entries[:0]
	for _, w := range rows {
		table, err := c.gather.find(strconv.AppendInt(nil, int64(w.table), 10), readRows)
		if err != nil {
			return err
		}
		c.entries = append(c.entries, c.gather.entry(table, w.row))
	}
	c.gather.part = c.server.partBytes()
	for done := 0; done < len(c.entries); {
		at := done
		done += c.gather.read(c.entries[done:], func(row []byte, readErr error) {
			sum := uint64(0)
			if row != nil {
				sum = maphash.Bytes(watchSeed, row) | 1
			}
			if readErr != nil {
				err = readErr
			}
			found(at, sum)
			at++
		})
	}
	return err
}

func (c *conn) watch(args [][]byte) error {
	if c.multi != nil {
		return failure("ERR WATCH inside MULTI is not allowed")
	}
	const most = 10_000
	if len(c.watched)+len(args) > most {
		return failure("ERR WATCH can watch at most 10000 keys")
	}
	rows := make([]watchedRow, 0, len(args))
	for _, key := range args {
		table, row, err := c.gather.parse(key)
		if err != nil {
			return err
		}
		rows = append(rows, watchedRow{table: c.gather.cache.view.Tables[table].Number, row: row})
	}
	if err := c.sums(rows, func(i int, sum uint64) { rows[i].sum = sum }); err != nil {
		return tagged(err)
	}
	c.watched = append(c.watched, rows...)
	if c.failed = c.watchedHeld.set(watchedBytes * len(c.watched)); c.failed == nil {
		c.ok()
	}
	return nil
}

// forget ends WATCH.
func (c *conn) forget() {
	c.watched = nil
	c.watchedHeld.set(0)
}

func (c *conn) unwatch([][]byte) error {
	c.forget()
	c.ok()
	return nil
}

// unchanged reports whether the watched rows have the bytes that WATCH saw.
func (c *conn) unchanged() (bool, error) {
	same := true
	err := c.sums(c.watched, func(i int, sum uint64) { same = same && sum == c.watched[i].sum })
	return same, err
}
