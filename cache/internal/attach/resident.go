package attach

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Where the rows of a resident table lie changes when the owner moves it to another target. The rules are those of kernels.Ranges, with a layout for each
// step: the owner goes on when all clients read by it and their batches of before have ended. A layout has ranges of its own, which the batches that begin
// by it keep; what GPUs read of them is changed in place, as captured batches outlive layouts.

// firstSeen returns a device that this process sees.
func (s *Session) firstSeen() int {
	return slices.IndexFunc(s.Set.Devices, func(d *read.Device) bool { return d.Device == s.seen })
}

// keepResidentLocked keeps a resident table as it was when a device is lost. The owner's layout no longer names the memory of that device, and batches that
// begin fail; but replays of captured ones may begin, too.
func (s *Session) keepResidentLocked(l *wire.Layout, table int) {
	lost := slices.ContainsFunc(l.Devices, func(d wire.DeviceView) bool { return d.Lost != "" })
	if lost && s.mu.layout != nil && table < len(l.Residents) {
		l.Residents[table] = s.mu.layout.Residents[table]
	}
}

// sameResident says whether the rows of a table lie where they did, as far as it is resident.
func sameResident(a, b *wire.Layout, table int) bool {
	return len(a.Residents) == 0 || reflect.DeepEqual(a.Residents[table], b.Residents[table])
}

// residentOfLocked returns a resident table of a layout, without its directory. at returns memory by its number.
func (s *Session) residentOfLocked(l *wire.Layout, table int, at func(uint64) device.Buffer) (*kernels.Resident, error) {
	of, devices := s.welcome.Tables[table], len(s.Set.Devices)
	bad := func(what string) error {
		return fmt.Errorf("cache: layout %d: resident table %s must have %s", l.Generation, of.Name, what)
	}
	if len(l.Residents) != len(s.Set.Tables) || l.Residents[table] == nil {
		return nil, bad("a place")
	}
	from := l.Residents[table]
	if len(from.Slots) != devices || len(from.Words) != devices {
		return nil, bad(fmt.Sprintf("slots (%d) and words (%d) on %d devices", len(from.Slots), len(from.Words), devices))
	}
	var all [buddy.MaxRanges]*kernels.Range
	for _, r := range from.Ranges {
		if r.Number < 0 || r.Number >= len(all) || len(r.Buddy) != devices || r.Target < buddy.MinTarget || r.Target > buddy.MaxTarget(of.RowBytes) {
			return nil, bad(fmt.Sprintf("ranges (number %d, target %d B, %d devices) as buddy.md says", r.Number, r.Target, len(r.Buddy)))
		}
		one := &kernels.Range{Target: r.Target, Slot: r.Slot, Overflow: r.Overflow}
		for d, id := range r.Buddy {
			one.Buddy[d] = at(id)
			if place := s.mu.regions[id]; place != nil && !place.Host {
				one.Peers = append(one.Peers, place.Device)
			}
		}
		if n := len(one.Peers); n != 0 && n != devices {
			return nil, bad("overflow places in host memory, or all on devices")
		}
		all[r.Number] = one
	}
	if from.Only < -1 || from.Only >= len(all) || len(from.Ranges) == 0 || from.Only >= 0 && all[from.Only] == nil {
		return nil, bad(fmt.Sprintf("the range (%d) that all rows are in", from.Only))
	}
	t := &kernels.Resident{
		Layout: buddy.Layout{Target: from.Ranges[0].Target, RowBytes: of.RowBytes, Rows: of.Capacity, Devices: devices},
		Ranges: kernels.RangesAt(all, from.Only, from.Changes),
	}
	for d := range devices {
		t.Slots[d], t.Words[d] = at(from.Slots[d]), at(from.Words[d])
	}
	return t, nil
}

// residentOnLocked returns a resident table as a device reads it, whose directory has its ranges from now on.
func (s *Session) residentOnLocked(of *kernels.Resident, on, table int) (*kernels.Resident, error) {
	t, d := *of, s.Set.Devices[on]
	if s.isHidden(on) || d.IsLost() { // no batch runs on it
		return &t, nil
	}
	at, ok := s.mu.directories[[2]int{on, table}]
	if !ok {
		var err error
		if at, err = d.Device.Alloc(kernels.RangesBytes, "ranges of a resident table"); err != nil {
			return nil, err
		}
		s.mu.directories[[2]int{on, table}] = at
	}
	t.Directory = at
	image := make([]byte, kernels.RangesBytes)
	t.Ranges.Image(&t, image)
	// Replays for which the first word is another one than when they were captured read the ranges: so it is the last to change.
	const front = 8
	return &t, errors.Join(device.Upload(d.Device, at.Slice(front, kernels.RangesBytes), image[front:]), device.Upload(d.Device, at.Slice(0, front), image[:front]))
}
