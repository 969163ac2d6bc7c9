package attach

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// notice handles what the owner sends unasked: memory, and layouts of it.
func (s *Session) notice(m *wire.Message) {
	defer m.CloseFiles()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	switch m.Method {
	case wire.Memory:
		err = s.takeLocked(m)
	case wire.Views:
		l := new(wire.Layout)
		if err = wire.Decode(m.Body, l); err != nil {
			break
		}
		if s.mu.newest = l; s.mu.open && !s.mu.closed {
			err = s.readByLocked(l)
		}
	}
	if err != nil && s.mu.err == nil {
		s.mu.err = err
	}
}

// takeLocked keeps the descriptors of new memory.
func (s *Session) takeLocked(m *wire.Message) error {
	var n wire.MemoryNotice
	if err := wire.Decode(m.Body, &n); err != nil {
		return err
	}
	if len(n.Regions) != len(m.Files) {
		return fmt.Errorf("cache: owner's descriptors (%d) must be those of %d regions", len(m.Files), len(n.Regions))
	}
	for i, r := range n.Regions {
		if s.mu.regions[r.ID] == nil {
			s.mu.regions[r.ID] = &region{Region: r, file: m.Files[i]}
			m.Files[i] = nil
		}
	}
	kept := m.Files[:0]
	for _, f := range m.Files {
		if f != nil {
			kept = append(kept, f)
		}
	}
	m.Files = kept
	return nil
}

// mapped returns the memory of a region, which it maps if it must: memory of the host or of a device, that this process may write or need not.
func (s *Session) mapped(id uint64, host, writable bool) (device.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.mu.regions[id]; r != nil && (r.Host != host || writable && !r.Writable) {
		return device.Buffer{}, fmt.Errorf("cache: region %d (%s) must be memory of the kind that it is for", id, r.What)
	}
	return s.mappedLocked(id)
}

func (s *Session) mappedLocked(id uint64) (b device.Buffer, err error) {
	r := s.mu.regions[id]
	switch {
	case r == nil:
		return b, fmt.Errorf("cache: region (%d) must be one that the owner has sent", id)
	case r.buffer.Size() != 0:
		return r.buffer, nil
	case r.Device < 0 || r.Device >= len(s.Set.Devices):
		return b, fmt.Errorf("cache: device (%d) of region %d must be 0 to %d", r.Device, id, len(s.Set.Devices)-1)
	}
	if r.by = s.Set.Devices[r.Device].Device; s.isHidden(r.Device) {
		r.by = s.seen
	}
	d, err := device.SharerOf(r.by)
	if err != nil {
		return b, err
	}
	if r.Host {
		b, err = d.ImportHost(r.file, r.Bytes, r.Writable, r.What)
	} else {
		b, err = d.Import(r.file, r.Bytes, r.Writable, r.What)
	}
	if err != nil && r.by != s.Set.Devices[r.Device].Device {
		err = fmt.Errorf("%w; it lies on GPU %d of the owner, which this process does not see", err, r.Device)
	}
	if err != nil {
		return b, fmt.Errorf("cache: memory of the owner: %w", err)
	}
	r.file.Close()
	r.file, r.buffer = nil, b
	return b, nil
}

// freeLocked unmaps a region, or closes its descriptor.
func (s *Session) freeLocked(r *region) {
	if r.file != nil {
		r.file.Close()
	}
	if r.buffer.Size() != 0 {
		r.by.Free(r.buffer)
	}
	delete(s.mu.regions, r.ID)
}

// openRing has batches of a device append samples to the owner's ring.
func (s *Session) openRing(d *read.Device, i int) error {
	if len(s.welcome.Rings) == 0 {
		return nil
	}
	if len(s.welcome.Rings) != len(s.Set.Devices) {
		return fmt.Errorf("cache: owner's sample rings (%d) must be one a device (%d)", len(s.welcome.Rings), len(s.Set.Devices))
	}
	if s.welcome.Rings[i].Records == 0 || s.isHidden(i) {
		return nil // no batch runs on it
	}
	records, err := s.mapped(s.welcome.Rings[i].Records, false, true)
	if err != nil {
		return err
	}
	head, err := s.mapped(s.welcome.Rings[i].Head, false, true)
	if err != nil {
		return err
	}
	if n := records.Size() / abi.SampleRecordBytes; n < 1 || n&(n-1) != 0 || n*abi.SampleRecordBytes != records.Size() || head.Size() < 8 {
		return fmt.Errorf("cache: sample ring (%d bytes) and its head (%d) must be of a power of two of records", records.Size(), head.Size())
	}
	d.Ring = new(kernels.SampleRing)
	d.Ring.Attach(d.Device, records, head)
	return nil
}

// readByLocked makes batches that begin from now on read by a layout, and tells the owner.
func (s *Session) readByLocked(l *wire.Layout) (err error) {
	if len(l.Devices) != len(s.Set.Devices) {
		return fmt.Errorf("cache: layout %d of %d devices must be of %d", l.Generation, len(l.Devices), len(s.Set.Devices))
	}
	named := map[uint64]bool{s.welcome.Board: true, s.welcome.Sheet: true, s.welcome.Codecs: true}
	for _, r := range s.welcome.Rings {
		named[r.Records], named[r.Head] = true, true
	}
	var failed error
	var others []uint64 // that only hidden devices read
	of := 0
	at := func(id uint64) (b device.Buffer) {
		switch {
		case s.isHidden(of):
			others = append(others, id)
		case id != 0 && failed == nil:
			named[id] = true
			b, failed = s.mappedLocked(id)
		}
		return b
	}
	views := make([]*read.View, len(l.Devices))
	tables := make([][]*read.TableView, len(l.Devices))
	for i, d := range l.Devices {
		if len(d.Tables) != len(s.Set.Tables) {
			return fmt.Errorf("cache: layout %d of %d tables must be of %d", l.Generation, len(d.Tables), len(s.Set.Tables))
		}
		of = i
		v := &read.View{Map: at(d.Map), Layout: hashmap.Layout{Buckets: d.Buckets}, Peers: d.Peers}
		for _, id := range d.Slabs {
			v.Slabs = append(v.Slabs, at(id))
		}
		if failed == nil && d.Lost == "" && !s.isHidden(i) && (d.Buckets == 0 || v.Map.Size() != v.Layout.Bytes()) {
			return fmt.Errorf("cache: hashmap (%d bytes) must be that of %d buckets", v.Map.Size(), d.Buckets)
		}
		views[i] = v
		for j, t := range d.Tables {
			rows := kernels.HostRows{
				Mem: at(t.Mem), Stride: t.Stride, Compressed: at(t.Compressed), Index: at(t.Index), RowBytes: s.welcome.Tables[j].RowBytes,
				Ahead: t.Ahead, Common: t.Common,
			}
			view := &read.TableView{Rows: rows, Rejected: at(t.Rejected), Oversize: at(t.Oversize)}
			tables[i] = append(tables[i], view)
			if failed == nil && d.Lost == "" && !s.isHidden(i) {
				failed = checkRows(&s.welcome.Tables[j], view)
			}
		}
	}
	residents := make([]*kernels.Resident, len(s.Set.Tables))
	of = s.firstSeen()
	for j := range residents {
		if !s.welcome.Tables[j].Resident {
			continue
		}
		s.keepResidentLocked(l, j)
		if residents[j], err = s.residentOfLocked(l, j, at); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	for j, t := range residents {
		if t == nil {
			continue
		}
		if err := checkResident(&s.welcome.Tables[j], t, l); err != nil {
			return err
		}
	}
	for _, id := range others { // its descriptor would hold the memory
		if r := s.mu.regions[id]; r != nil && !named[id] && r.file != nil {
			s.freeLocked(r)
		}
	}
	s.loseLocked(l)
	var shares []*transfer.ShareTable
	for i, d := range s.Set.Devices {
		for j, t := range tables[i] {
			if s.mu.layout != nil && s.mu.layout.Devices[i].Tables[j] == l.Devices[i].Tables[j] && sameResident(s.mu.layout, l, j) {
				continue
			}
			if residents[j] != nil {
				if t.Resident, err = s.residentOnLocked(residents[j], i, j); err != nil {
					return err
				}
			}
			if old := d.Table(j); old != nil {
				shares = append(shares, old.Share)
			}
			if err := s.setTable(d, j, t); err != nil {
				return err
			}
		}
		d.SetView(views[i]) // after the tables: the row of a location that this map does not have any more is in their memory
		if err := d.PublishError(); err != nil && !d.IsLost() && d.Device.Err() == nil {
			return err // replays still read by the layout before
		}
	}
	s.mu.layout = l
	if !l.Paused {
		s.resumeLocked()
	}
	s.board.SetGeneration(l.Generation)
	s.dropLocked(named, shares)
	return nil
}

// setTable gives a device its view of a table, with the codec that it has had so far.
func (s *Session) setTable(d *read.Device, i int, t *read.TableView) (err error) {
	if old := d.Table(i); old != nil {
		d.SetTable(i, old.With(t))
		return nil
	}
	if t.Codec, err = kernels.AttachCodec(d.Device, s.codecs[i]); err != nil {
		return err
	}
	d.SetTable(i, t)
	return nil
}

// dropLocked unmaps the memory that no layout names any more, once no batch and none of the workers of shares reads it.
func (s *Session) dropLocked(named map[uint64]bool, shares []*transfer.ShareTable) {
	var old []*region
	for id, r := range s.mu.regions {
		if !named[id] && r.buffer.Size() != 0 {
			old = append(old, r)
			delete(s.mu.regions, id)
		}
	}
	if len(old) == 0 && len(shares) == 0 {
		return
	}
	s.remaps.Go(func() {
		if s.Set.WaitEpoch(context.Background()) != nil && s.Set.Captured() { // replays may still read it
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range old {
				s.mu.regions[r.ID] = r // Close frees it
			}
			return
		}
		for _, share := range shares {
			share.Release()
		}
		for _, r := range old {
			r.by.Free(r.buffer)
		}
	})
}
