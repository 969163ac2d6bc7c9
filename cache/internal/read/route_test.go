package read

import (
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestDecide_Launches checks which launches serve a batch.
func TestDecide_Launches(t *testing.T) {
	for _, c := range []struct {
		rowBytes     int
		n            int64
		hits, misses int64 // of the last batch
		want         Launches
	}{
		{512, oneLaunchRows, 0, 1, OneLaunch},
		{512, oneLaunchRows + 1, 0, 1, SideBySide},
		{512, 200_000, 99, 1, HitsFirst},
		{512, 200_000, 97, 3, SideBySide},
		{512, 200_000, 0, 0, SideBySide}, // no batch has ended yet
		{8191, 10, 0, 1, OneLaunch},
		{8192, 10, 1, 0, HitsFirst},
		{8192, 10_000, 0, 1, SideBySide},
	} {
		table := &TableView{}
		table.Rows.RowBytes = c.rowBytes
		table.learn(&Outcome{Hits: c.hits, Misses: c.misses})
		r, planned := decide(table, c.n, false, 0)
		if r.launches != c.want || planned != c.want {
			t.Errorf("%+v: %v, planned %v", c, r.launches, planned)
		}
		if lists := r.scratchBytes(int(c.n)); (lists == 0) != (c.want == OneLaunch) {
			t.Errorf("%+v: %d bytes of lists", c, lists)
		}
		if r, planned := decide(table, c.n, true, 0); r.launches != SideBySide || planned != c.want {
			t.Errorf("%+v traced: %v, planned %v", c, r.launches, planned)
		}
	}
}

// TestDecide_Misses checks how misses are read: in address order in large batches of large tables.
func TestDecide_Misses(t *testing.T) {
	for _, c := range []struct {
		tier     int64
		rowBytes int
		n        int64
		want     transfer.Reading
	}{
		{1 << 20, 512, orderedRows, transfer.Reading{}},
		{orderedTier - 1, 512, orderedRows, transfer.Reading{}},
		{orderedTier, 512, orderedRows - 1, transfer.Reading{}},
		{orderedTier, 512, orderedRows, transfer.Reading{Ordered: true}},
		{6 << 30, 1024, orderedRows, transfer.Reading{Ordered: true, Units: true}},
		{6<<30 - 1, 1024, orderedRows, transfer.Reading{Ordered: true}},
		{6 << 30, 1025, orderedRows, transfer.Reading{Ordered: true}},
	} {
		table := &TableView{}
		table.Rows.RowBytes, table.Rows.Mem = c.rowBytes, device.Buffer{}.Slice(0, c.tier)
		if r, _ := decide(table, c.n, false, 0); r.misses != c.want {
			t.Errorf("%+v: %+v", c, r.misses)
		}
	}
}

// TestTuning_OfOneSet: a tuning affects only the set that it belongs to.
func TestTuning_OfOneSet(t *testing.T) {
	sets := [2]*Set{serving(t, 1), serving(t, 1)}
	sets[0].Tuning.Launches = HitsFirst
	for i, want := range []Launches{HitsFirst, OneLaunch} {
		sets[i].SetTables([]*Table{{}})
		d := sets[i].Devices[0]
		d.SetTable(0, &TableView{})
		if r, planned := d.decide(0, 1, false); r.launches != want || planned != want {
			t.Errorf("set %d: %v, planned %v, want %v", i, r.launches, planned, want)
		}
	}
}

// TestLane_BeginSharesByTheViewItReads: a table's rows may move after a batch's route was decided and before the
// batch begins. Host threads must read its misses from the new memory, as the batch does.
func TestLane_BeginSharesByTheViewItReads(t *testing.T) {
	s := serving(t, 1)
	s.SetTables([]*Table{{}})
	d := s.Devices[0]
	before, after := &TableView{Share: new(transfer.ShareTable)}, &TableView{Share: new(transfer.ShareTable)}
	d.SetTable(0, before)
	l := d.lanes[0].Load()
	l.route, _ = decide(d.Table(0), oneLaunchRows+1, false, 0)
	d.SetTable(0, after)
	if err := l.begin(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	defer l.end()
	if l.route.table != after || l.route.misses.Share != after.Share {
		t.Error("the batch reads rows by the new view and shares misses by the old one")
	}
}
