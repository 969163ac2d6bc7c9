package read

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// captureTables captures pooled batches of several tables, which share launches, in the graph that stream s captures.
// A client of a shared cache captures each on its own, as its board shows the owner the replays of each. REQUIRES:
// fused allows each batch.
func (d *Device) captureTables(s device.Stream, parts []Part) (*Batch, error) {
	if d.places != nil {
		return d.captureEach(s, parts)
	}
	d.SettleReplays()
	leader, rows := &capture{owner: d, tables: &kernels.PooledTables{}}, 0
	k := leader.tables
	fail := func(err error) (*Batch, error) {
		return nil, d.wrap(err, rows, d.set.Tables[parts[0].Table])
	}
	for i := range parts {
		p, c := &parts[i], leader
		if i > 0 {
			c = &capture{owner: d, leader: leader}
		}
		c.table, c.rows, c.sink = p.Table, p.Pool.Rows, sink{pool: &p.Pool}
		rows += c.rows
		if err := d.captures.add(c, p.Rows, p.Out); err != nil {
			if i > 0 {
				d.captures.remove(d, []*capture{leader})
			}
			return fail(err)
		}
		if i > 0 {
			leader.followers = append(leader.followers, c)
		}
		k.Replays = append(k.Replays, &c.kernel)
	}
	if err := leader.reserveTables(parts); err != nil {
		d.captures.remove(d, []*capture{leader})
		return fail(err)
	}
	hold := holdOf(s)
	err := s.Launch(k) // after an error some launches may be in the graph, and its replays use the memory
	d.captures.join(leader, hold)
	for _, c := range leader.followers {
		d.captures.join(c, nil)
	}
	if err != nil {
		return fail(err)
	}
	for i := range parts {
		if w := parts[i].Watcher; w != nil {
			w.Captured()
		}
	}
	b := &Batch{table: leader.table, rows: rows, captured: leader}
	b.mu.settled = true
	return b, nil
}

// reserveTables allocates the memory that the tables of a batch share.
func (c *capture) reserveTables(parts []Part) (err error) {
	d, k := c.owner, c.tables
	if !d.Device.NeedsStaging() {
		return nil
	}
	if n := kernels.PooledPartialBytes(len(parts), func(i int) *reduce.Batch { return &parts[i].Pool }); n > 0 {
		if k.Partials, err = d.Device.Alloc(n, "a captured batch"); err != nil {
			return err
		}
		d.captures.bytes.Add(k.Partials.Size())
	}
	k.Args, err = d.allocNear(int64(len(parts))*kernels.PooledTableBytes, "a captured batch")
	return err
}

// captureEach captures batches one by one. REQUIRES: none of them is a window of bags.
func (d *Device) captureEach(s device.Stream, parts []Part) (*Batch, error) {
	all := &Batch{table: parts[0].Table}
	all.mu.settled = true
	for i := range parts {
		p := &parts[i]
		b, err := d.capture(s, p.Table, p.Rows, p.Out, 0, &p.Pool, p.Watcher)
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, b)
	}
	return all, nil
}

// holdOf returns a hold on the graph that a stream captures, which tells when the graph is destroyed. It is nil where
// the driver has no holds; the caller can still release the batch.
func holdOf(s device.Stream) device.Hold {
	if of, ok := s.(device.Capturer); ok {
		if h, err := of.HoldCapture(); err == nil {
			return h
		}
	}
	return nil
}
