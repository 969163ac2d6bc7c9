package transfer

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
)

// watchedStream notes at each launch whether a table is as it was, and what its misses read.
type watchedStream struct {
	device.Stream
	w *watched
}

type watched struct {
	device.Device
	table, before []byte
	written       int // launches while the table was not as before
	compressed    int // fetches of compressed rows of the table
	common        int // HostRows.Common of the last of them
	fail          int // the launch that fails, 0 for none
	launches      int
}

func (w *watched) NewStream() (device.Stream, error) {
	s, err := w.Device.NewStream()
	return watchedStream{s, w}, err
}

func (s watchedStream) Launch(k device.Kernel) error {
	if s.w.launches++; s.w.launches == s.w.fail {
		return errLaunch
	}
	if !bytes.Equal(s.w.table, s.w.before) {
		s.w.written++
	}
	if f, ok := k.(*kernels.Fetch); ok && len(f.Tier.Mem.Bytes()) > 0 && &f.Tier.Mem.Bytes()[0] == &s.w.table[0] && f.Tier.Compressed.Size() > 0 {
		s.w.compressed++
		s.w.common = f.Tier.Common
	}
	return s.Stream.Launch(k)
}

// measureWatched measures codecs on a table of 3000 rows of 64 bytes.
func measureWatched(t *testing.T, adopted bool, change func(w *watched, m *measuring)) (*watched, map[string]registry.Costs, error) {
	t.Helper()
	limit(t, time.Minute)
	data, a := rowsOf(3000, 64, 3), newAccelerator()
	tier, err := Load(a, SourceOf(data, 64), Options{Codec: registry.None, DType: dtype.Float32})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	open := len(a.open)
	mem := tier.host.Mem.Bytes()
	w := &watched{Device: a, table: mem, before: bytes.Clone(mem)}
	tier.home = w
	if adopted {
		tier.adopted = mem
		defer func() { tier.adopted = nil }()
	}
	codecs := trainedOn(t, tier, data, registry.None, "ibp4", "rank")
	codecs[1].Rows[0], codecs[1].Rows[7] = data[:64], data[7*64:8*64] // that do not shrink
	m := tier.newMeasuring(MeasureOptions{Share: &ShareOptions{Always: true}}, 1000, codecs)
	change(w, m)
	costs, err := m.run()
	if !bytes.Equal(w.table, w.before) {
		t.Error("the table is not as it was")
	}
	if len(a.open) != open || a.twice != 0 {
		t.Errorf("buffers open %v, %d were freed twice", a.open, a.twice)
	}
	return w, costs, err
}

// TestProbes_MissesAreOfEncodedRows: while codecs are measured, encoded rows lie all over a table of the cache's own, and misses read and
// decode them there. Afterwards the table is as it was, also if measuring fails, at whatever step. Adopted memory is never written to.
func TestProbes_MissesAreOfEncodedRows(t *testing.T) {
	race.SkipSequential(t)
	w, costs, err := measureWatched(t, false, func(*watched, *measuring) {})
	if err != nil || len(costs) != 3 {
		t.Fatalf("costs %v, error %v", costs, err)
	}
	if w.written == 0 || w.compressed == 0 {
		t.Errorf("%d launches with probe rows, %d fetches of them", w.written, w.compressed)
	}
	if w.common < 1 || w.common > 64 {
		t.Errorf("the host is to gather %d bytes of an encoded row, want 1 to 64", w.common)
	}
	for fail := 1; fail < w.launches; fail += 7 {
		if _, _, err := measureWatched(t, false, func(w *watched, _ *measuring) { w.fail = fail }); !errors.Is(err, errLaunch) {
			t.Errorf("launch %d fails: error %v", fail, err)
		}
	}
	if _, _, err := measureWatched(t, false, func(_ *watched, m *measuring) {
		for i, row := range m.codecs[1].Rows {
			m.codecs[1].Rows[i] = make([]byte, max(1, len(row)/9)) // too short for any row
		}
	}); err == nil || !strings.Contains(err.Error(), "did not decode") {
		t.Errorf("corrupt rows: error %v", err)
	}
	w, costs, err = measureWatched(t, true, func(*watched, *measuring) {})
	if err != nil || len(costs) != 3 || w.written != 0 {
		t.Errorf("adopted: costs %v, error %v, %d launches while the table was not as before", costs, err, w.written)
	}
}
