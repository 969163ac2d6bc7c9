package read

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// published is a table's views for replays, in device memory: where the map, the slabs and the host rows lie now.
// Each change writes a new view. A replay reads the latest one when it begins. The views take ReplayTurns places in
// turns.
type published struct {
	users   int // captures; without any there are no views
	views   device.Buffer
	version uint64 // number of the latest view
	readers [kernels.ReplayTurns]readers
	err     error // of publishing the latest view; replays may then read freed memory
}

// readers are the replays that may read a replaced view. If known is false, any running replay may.
type readers struct {
	known bool
	of    []replay
}

// captures.stage holds a view, and behind it a word to store.
const (
	stageWord  = (kernels.ReplayViewBytes + 15) &^ 15
	stageBytes = stageWord + 16
)

// giveViews gives a capture the views of its table. REQUIRES: s.publishing is locked.
func (s *captures) giveViews(c *capture) error {
	d, at := c.owner, &s.published[c.table]
	if at.users == 0 {
		views, err := d.Device.Alloc(kernels.ReplayViewsBytes, "captured batches")
		if err != nil {
			return err
		}
		*at = published{views: views}
		for i := range at.readers {
			at.readers[i].known = true // no replay reads the place yet
		}
		s.bytes.Add(kernels.ReplayViewsBytes)
	}
	at.users++
	c.kernel.Views = at.views
	if at.version > 0 && at.err == nil {
		return nil
	}
	return s.publish(d, c.table)
}

// leave removes a capture. It says whether that was the last one.
func (at *published) leave() bool {
	at.users--
	return at.users == 0
}

// publish writes a view with what batches that begin now read of a table. Replays that begin from now on read it.
// REQUIRES: s.publishing is locked.
func (s *captures) publish(d *Device, table int) error {
	err := s.write(d, table)
	if err != nil {
		err = fmt.Errorf("captured batches: %w", err)
	}
	s.mu.Lock()
	s.published[table].err = err
	s.mu.Unlock()
	return err
}

func (s *captures) write(d *Device, table int) error {
	at := &s.published[table]
	next := at.version + 1
	if err := s.awaitReaders(d, &at.readers[next%kernels.ReplayTurns]); err != nil {
		return err
	}
	k := d.serveNow(table)
	k.WriteView(s.stage.Bytes()[:kernels.ReplayViewBytes])
	word := s.stage.Slice(stageWord, stageBytes)
	binary.NativeEndian.PutUint64(word.Bytes(), 0)
	binary.NativeEndian.PutUint64(word.Bytes()[8:], next)
	to := kernels.ReplayViewAt(next)
	if err := errors.Join(
		s.publisher.Copy(at.views.Slice(to, to+kernels.ReplayViewBytes), s.stage.Slice(0, kernels.ReplayViewBytes)),
		s.publisher.Launch(&kernels.Store{Target: at.views.Slice(0, 8), Words: word}),
		s.publisher.Synchronize(),
	); err != nil {
		return err
	}
	old := &at.readers[at.version%kernels.ReplayTurns]
	at.version, *old = next, readers{}
	if running, err := d.replaysNow(); err == nil {
		*old = readers{true, running}
	}
	return nil
}

// awaitReaders waits until no replay reads a replaced view. The wait is short, as ReplayTurns-1 other views have been
// the latest since.
func (s *captures) awaitReaders(d *Device, r *readers) error {
	for !r.known {
		running, err := d.replaysNow()
		if err != nil {
			return err
		}
		*r = readers{true, running}
	}
	for !d.ended(r.of) {
		time.Sleep(pollEpoch)
	}
	*r = readers{known: true}
	return nil
}

// change runs change, which sets what batches read of a table, or of all tables if table is negative. It then
// publishes that to replays.
func (s *captures) change(d *Device, table int, change func()) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	change()
	for i := range s.published {
		if s.published[i].users > 0 && (table < 0 || i == table) {
			s.publish(d, i) // Wait returns its error until a later view is published
		}
	}
}

// PublishError returns the error of publishing the latest views to replays. It is nil if no view is out of date.
func (d *Device) PublishError() error {
	s := &d.captures
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.published {
		if s.published[i].users > 0 && s.published[i].err != nil {
			return s.published[i].err
		}
	}
	return nil
}

// Lengthened tells other processes and replays a table's new length.
func (s *Set) Lengthened(table int) {
	if r := s.Readers(); r != nil {
		r.Lengthened(table, s.Tables[table].Tier.Rows())
	}
	for _, d := range s.Devices {
		if !d.IsLost() {
			d.captures.change(d, table, func() {}) // also waits for captures that are being added, which may have read the old length
		}
	}
}
