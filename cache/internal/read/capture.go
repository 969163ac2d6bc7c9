package read

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// captures are the batches of a device that are parts of captured graphs.
//
// A replay begins without host code. So what its kernels must know of the map, the slabs and the table's host rows lies in a record in device
// memory, one for each table, which the first kernel reads. A record never changes: what replaces it is another one, to which the table's word
// in views then points. The old record is used again when no replay runs that may have read it.
type captures struct {
	count atomic.Int32 // len(all), for those who need not look

	mu    sync.Mutex
	all   []*capture
	bytes int64 // of device memory
	// What follows is made with the first capture, and freed with the last.
	stream device.Stream // for records and totals
	probe  device.Event  // never recorded: asking for it shows whether the device has failed
	stage  device.Buffer // page-locked: a record and a word to be stored, or the state of a capture
	views  device.Buffer // a word for each table: the address of its record
	shown  []shown       // by table
	spare  []device.Buffer
	old    []oldRecord
	err    error // of showing a record: replays may read what is gone
}

// shown is what the replays of a table read.
type shown struct {
	users  int // captures; without any there is no record
	record device.Buffer
}

// oldRecord is a record that another one has replaced, and the replays that may still read it.
type oldRecord struct {
	buffer device.Buffer
	until  []replay
}

// replay is a replay that ran at some moment.
type replay struct {
	of *capture
	n  uint64
}

// capture is a batch in a captured graph. The device's captures.mu guards it.
type capture struct {
	owner       *Device
	table, rows int
	kernel      kernels.Replay
	hold        device.Hold // nil where the driver does not say when a graph is destroyed
	released    bool        // the caller will not replay it again
	gone        bool        // its memory is freed
	settled     kernels.ReplayTotals
	err         error // of replays, not yet returned by Wait
}

// stage has a record at its front and words behind; or a capture's state.
const (
	stageWords = 1024
	stageBytes = kernels.ReplayStateBytes
)

// capture makes a batch a part of the graph that stream s captures. Only the replays' own kernels read rows and write out.
func (d *Device) capture(s device.Stream, table int, rows RowNumbers, out device.Buffer, w Watcher) (*Batch, error) {
	t, n := d.Table(table), int(rows.Len())
	if t.long() {
		return nil, fmt.Errorf("%w: row length (%d) must be below %d for a batch in a graph", ErrCapturing, t.Rows.RowBytes, longRow)
	}
	d.SettleReplays() // gives back what destroyed graphs had
	c := &capture{owner: d, table: table, rows: n}
	if err := d.captures.add(c, table, rows, out); err != nil {
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	var hold device.Hold
	if of, ok := s.(device.Capturer); ok {
		if h, err := of.HoldCapture(); err == nil { // else the caller can still release it
			hold = h
		}
	}
	err := s.Launch(&c.kernel)
	d.captures.mu.Lock()
	c.hold = hold // not before: the graph may be destroyed, and then another goroutine gives the memory back
	d.captures.mu.Unlock()
	if err != nil {
		c.release()
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	if w != nil {
		w.Captured()
	}
	b := &Batch{table: table, rows: n, captured: c}
	b.mu.settled = true
	return b, nil
}

// add gives a capture its memory and has the table shown to replays.
func (s *captures) add(c *capture, table int, rows RowNumbers, out device.Buffer) (err error) {
	d := c.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	defer func() {
		if len(s.all) == 0 {
			s.free(d)
		}
	}()
	if err := s.open(d); err != nil {
		return err
	}
	k := &c.kernel
	if k.State, err = d.Device.Alloc(kernels.ReplayStateBytes, "captured batch"); err != nil {
		return err
	}
	if k.Words, err = d.allocNear(kernels.ReplayWordsBytes, "captured batch"); err != nil {
		d.Device.Free(k.State)
		return err
	}
	shown := &s.shown[table]
	if shown.users == 0 {
		err = s.show(d, table)
	}
	if err != nil {
		d.Device.Free(k.State)
		d.Device.Free(k.Words)
		return err
	}
	shown.users++
	k.Serve = d.serveNow(table)
	l := &k.Serve.Lookup
	l.Rows, l.Int32, l.Out, l.Samples = rows.Buffer, rows.Int32, out, d.nextSampling()
	k.View = s.views.Slice(int64(table)*8, int64(table+1)*8)
	s.all = append(s.all, c)
	s.count.Add(1)
	s.bytes += kernels.ReplayStateBytes
	return nil
}

// serveNow returns what batches that begin now read of a table.
func (d *Device) serveNow(table int) kernels.Serve {
	v, t := d.view.Load(), d.Table(table)
	return kernels.Serve{
		Lookup: kernels.Lookup{
			Map: v.Map, Layout: v.Layout, Table: table, Limit: d.set.Tables[table].Tier.Rows(), Rejected: t.Rejected, Oversize: t.Oversize,
			Peers: v.Peers, RowBytes: t.Rows.RowBytes,
		},
		Slabs: v.Slabs, Codec: t.Codec, Tier: t.Rows,
	}
}

// open makes what all captures of a device share.
func (s *captures) open(d *Device) (err error) {
	if s.stream == nil {
		if s.stream, err = d.Device.NewStream(); err != nil {
			s.stream = nil
			return err
		}
	}
	if s.probe == nil {
		if s.probe, err = d.Device.NewEvent(); err != nil {
			s.probe = nil
			return err
		}
	}
	if s.stage.Size() == 0 {
		if s.stage, err = d.allocNear(stageBytes, "captured batches"); err != nil {
			return err
		}
	}
	if s.views.Size() == 0 {
		n := int64(len(d.tables)) * 8
		if s.views, err = d.Device.Alloc(n, "captured batches"); err != nil {
			return err
		}
		s.bytes += n
		s.shown = make([]shown, len(d.tables))
	}
	return nil
}

// show has replays of a table that begin from now on read what batches that begin now read. REQUIRES: s.mu is locked.
func (s *captures) show(d *Device, table int) error {
	record, err := s.newRecord(d)
	if err != nil {
		return err
	}
	k := d.serveNow(table)
	k.WriteReplayView(s.stage.Bytes()[:kernels.ReplayViewBytes])
	word := s.stage.Slice(stageWords, stageWords+16)
	binary.NativeEndian.PutUint64(word.Bytes(), uint64(table))
	binary.NativeEndian.PutUint64(word.Bytes()[8:], record.Addr())
	err = errors.Join(
		s.stream.Copy(record, s.stage.Slice(0, kernels.ReplayViewBytes)),
		s.stream.Launch(&kernels.Store{Target: s.views, Words: word}),
		s.stream.Synchronize(),
	)
	if err != nil {
		s.spare = append(s.spare, record)
		return err
	}
	at := &s.shown[table]
	if at.record.Size() > 0 {
		d.set.fence.Add(1)
		s.old = append(s.old, oldRecord{at.record, s.running(nil)})
	}
	at.record = record
	return nil
}

// newRecord returns memory for a record. If the device has none, it waits for replays that read an old one.
func (s *captures) newRecord(d *Device) (device.Buffer, error) {
	for {
		s.old = slices.DeleteFunc(s.old, func(o oldRecord) bool {
			for _, r := range o.until {
				if !r.passed() {
					return false
				}
			}
			s.spare = append(s.spare, o.buffer)
			return true
		})
		if n := len(s.spare); n > 0 {
			b := s.spare[n-1]
			s.spare = s.spare[:n-1]
			return b, nil
		}
		b, err := d.Device.Alloc(kernels.ReplayViewBytes, "captured batches")
		if err == nil {
			s.bytes += kernels.ReplayViewBytes
			return b, nil
		}
		if len(s.old) == 0 || s.failed(d) {
			return b, err
		}
		time.Sleep(pollEpoch)
	}
}

// change changes what batches read of some tables, all if table is negative, and has it shown to replays, too.
func (s *captures) change(d *Device, table int, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for i := range s.shown {
		if s.shown[i].users > 0 && (table < 0 || i == table) {
			if err := s.show(d, i); err != nil && !s.failed(d) {
				s.err = errors.Join(s.err, fmt.Errorf("captured batches: %w", err))
			}
		}
	}
}

// Lengthened has replays see a table's new length.
func (s *Set) Lengthened(table int) {
	for _, d := range s.Devices {
		if !d.IsLost() {
			d.captures.change(d, table, func() {}) // waits for a capture that is being added and may have read the old length
		}
	}
}

// running appends the replays that run. REQUIRES: s.mu is locked.
func (s *captures) running(all []replay) []replay {
	for _, c := range s.all {
		if begun, ended := c.kernel.Running(); begun != ended {
			all = append(all, replay{c, begun})
		}
	}
	return all
}

// passed says whether the replay has ended. REQUIRES: the captures' mu is locked.
func (r *replay) passed() bool {
	if r.of.gone {
		return true
	}
	_, ended := r.of.kernel.Running()
	return ended >= r.n
}

// failed says whether the device has failed: then replays do not end.
func (s *captures) failed(d *Device) bool {
	if d.Device.Err() == nil {
		s.probe.Passed()
	}
	return d.IsLost() || d.Device.Err() != nil
}

// replaysNow returns the replays that run on the device.
func (d *Device) replaysNow() []replay {
	s := &d.captures
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running(nil)
}

// awaitReplays waits for the replays that run on the device.
func (d *Device) awaitReplays() {
	for _, r := range d.replaysNow() {
		for !d.ended(r) {
			time.Sleep(pollBatches)
		}
	}
}

// ended says whether a replay of the device has ended, or never will.
func (d *Device) ended(r replay) bool {
	d.captures.mu.Lock()
	defer d.captures.mu.Unlock()
	return r.passed() || d.captures.failed(d)
}

// SettleReplays adds what captured batches have counted to the statistics, and gives back the memory of those whose graphs are destroyed.
func (d *Device) SettleReplays() {
	s := &d.captures
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.all) {
		c.released = c.released || c.hold != nil && c.hold.Over()
		if s.settle(c) && c.released {
			s.remove(c)
		}
	}
}

// settle adds the totals of a capture to the statistics. It says whether no replay runs.
func (s *captures) settle(c *capture) (idle bool) {
	d := c.owner
	for range 8 { // the totals may be overwritten while they are copied, if the goroutine loses its processor
		if d.IsLost() || d.Device.Err() != nil {
			return true
		}
		begun, n := c.kernel.Running()
		idle = begun == n
		if n == c.settled.Replays {
			return idle
		}
		if err := errors.Join(s.stream.Copy(s.stage.Slice(0, kernels.ReplayStateBytes), c.kernel.State), s.stream.Synchronize()); err != nil {
			return s.failed(d)
		}
		if _, now := c.kernel.Running(); now >= n+kernels.ReplayKept-1 {
			continue
		}
		total := kernels.ReplayTotalsAt(s.stage.Bytes(), n)
		o, replays := outcomeOf(&total, &c.settled)
		c.settled = total
		err := o.reportReplays(d, c.table, c.rows, replays)
		c.err = errors.Join(c.err, err)
		d.set.faults.add(err)
		return idle
	}
	return false
}

// outcomeOf returns what replays between two totals did, and their number.
func outcomeOf(now, before *kernels.ReplayTotals) (o Outcome, replays int64) {
	o.Hits = int64(now.Hits - before.Hits)
	o.PeerHits = int64(now.Peers - before.Peers)
	o.HostBytes = int64(now.HostBytes - before.HostBytes)
	for r := range o.Reasons {
		o.Reasons[r] = int64(now.Reasons[r] - before.Reasons[r])
		o.Misses += o.Reasons[r]
	}
	o.corrupt, o.corruptAt = int64(now.Corrupt-before.Corrupt), int(now.CorruptPosition)
	o.outOfRange, o.outOfRangeAt = int64(now.OutOfRange-before.OutOfRange), int(now.FirstOutOfRange)
	return o, int64(now.Replays - before.Replays)
}

// remove frees a capture's memory. REQUIRES: none of its replays runs or will run; s.mu is locked.
func (s *captures) remove(c *capture) {
	d := c.owner
	c.gone = true
	s.all = slices.DeleteFunc(s.all, func(o *capture) bool { return o == c })
	s.count.Add(-1)
	d.Device.Free(c.kernel.State)
	d.Device.Free(c.kernel.Words)
	s.bytes -= kernels.ReplayStateBytes
	if c.hold != nil {
		c.hold.Free()
	}
	at := &s.shown[c.table]
	if at.users--; at.users == 0 { // of this table no replay runs
		s.spare = append(s.spare, at.record)
		at.record = device.Buffer{}
	}
	c.kernel = kernels.Replay{}
	if len(s.all) == 0 {
		s.free(d)
	}
}

// free frees what captures share. REQUIRES: there is none; s.mu is locked.
func (s *captures) free(d *Device) {
	for _, o := range s.old {
		s.spare = append(s.spare, o.buffer)
	}
	for _, b := range append(s.spare, s.stage, s.views) {
		d.Device.Free(b)
	}
	if s.stream != nil {
		s.stream.Close()
	}
	if s.probe != nil {
		s.probe.Close()
	}
	s.stage, s.views, s.stream, s.probe, s.shown, s.spare, s.old, s.bytes = device.Buffer{}, device.Buffer{}, nil, nil, nil, nil, nil, 0
}

// release gives up a batch that is not replayed again. It waits for replays that run.
func (c *capture) release() {
	c.await(func(s *captures) {
		c.released = true
		s.settle(c)
		s.remove(c)
	})
}

// wait waits for the replays that have begun, and returns what was wrong with those since the last call.
func (c *capture) wait() (err error) {
	c.await(func(s *captures) { s.settle(c) })
	s := &c.owner.captures
	s.mu.Lock()
	defer s.mu.Unlock()
	err, c.err = c.err, nil
	if err == nil && (s.err != nil || c.owner.Device.Err() != nil) {
		err = c.owner.orLost(s.err)
	}
	return err
}

// await calls f, under the lock, once the replays that had begun have ended. It does not, if the capture's memory is freed.
func (c *capture) await(f func(*captures)) {
	s := &c.owner.captures
	until := ^uint64(0)
	for {
		s.mu.Lock()
		if c.gone {
			s.mu.Unlock()
			return
		}
		begun, ended := c.kernel.Running()
		until = min(until, begun)
		if ended >= until || s.failed(c.owner) {
			f(s)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		time.Sleep(pollBatches)
	}
}

// done says whether no replay runs.
func (c *capture) done() (bool, error) {
	s := &c.owner.captures
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return true, nil
	}
	begun, ended := c.kernel.Running()
	if begun != ended && s.failed(c.owner) {
		return false, c.owner.LostError()
	}
	return begun == ended, nil
}

// close waits for the replays that run and frees everything. Nobody may launch the graphs any more.
func (s *captures) close(d *Device) {
	for _, r := range d.replaysNow() {
		for !d.ended(r) {
			time.Sleep(pollBatches)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.all) {
		s.settle(c)
		s.remove(c)
	}
}
