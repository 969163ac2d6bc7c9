package read

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// published is what replays of a table read: of the map, the slabs and the table's host rows, which have no fixed place. The views follow one
// another; a replay reads the latest one that there is when it begins. The views' places are used in turns.
type published struct {
	users   int // captures; without any there are no views
	views   device.Buffer
	version uint64 // of the latest view
	readers [kernels.ReplayTurns]readers
	err     error // of publishing the latest view: replays may read what is gone
}

// readers are the replays that may read a view that has been replaced. Unless known, these are all that run.
type readers struct {
	known bool
	of    []replay
}

// stage has a view at its front, and a word to be stored behind.
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
			at.readers[i].known = true // nobody
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

// leave takes a capture away. It says whether it was the last one.
func (at *published) leave() bool {
	at.users--
	return at.users == 0
}

// publish has replays of a table that begin from now on read what batches that begin now read. REQUIRES: s.publishing is locked.
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

// awaitReaders waits until nobody reads a view that has been replaced. That is soon: several others have replaced it since.
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

// change changes what batches read of some tables, all if table is negative, and publishes it to replays, too.
func (s *captures) change(d *Device, table int, change func()) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	change()
	for i := range s.published {
		if s.published[i].users > 0 && (table < 0 || i == table) {
			s.publish(d, i) // its error is returned by Wait, until a later view is published
		}
	}
}

// PublishError is the error of publishing to replays on the device what batches read now, nil if none is out of date.
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

// Lengthened has other processes and replays see a table's new length.
func (s *Set) Lengthened(table int) {
	if r := s.Readers(); r != nil {
		r.Lengthened(table, s.Tables[table].Tier.Rows())
	}
	for _, d := range s.Devices {
		if !d.IsLost() {
			d.captures.change(d, table, func() {}) // waits for a capture that is being added and may have read the old length
		}
	}
}
