package transfer

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// discarding is an accelerator whose host memory is given back in parts, and that says when.
type discarding struct {
	*accelerator
	discard func()
}

func (d discarding) Discard(device.Buffer, int64, int64) { d.discard() }

// TestLoad_EndsWhilePacking: once the context has ended, each goroutine ends the part that it packs, and Load frees everything.
func TestLoad_EndsWhilePacking(t *testing.T) {
	const parts, workers = 40, 2
	data := rowsOf(parts*packGrain, 16, 1)
	for _, codec := range []string{registry.None, "ibp4"} {
		ctx, cancel := context.WithCancel(context.Background())
		var mu sync.Mutex
		packed := 0
		d := discarding{newAccelerator(), func() {
			mu.Lock() // no other part ends while the context does
			defer mu.Unlock()
			if packed++; packed == 3 {
				cancel()
			}
		}}
		tier, err := Load(d, SourceOf(data, 16), Options{Context: ctx, Codec: codec, DType: dtype.Float32, Mode: Packed, Workers: workers})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", codec, err)
		}
		if err == nil {
			tier.Close()
		}
		if packed > 3+workers {
			t.Errorf("%s: %d of %d parts were packed, the context having ended with part 3", codec, packed, parts)
		}
		if len(d.open) != 0 || d.twice != 0 {
			t.Errorf("%s: buffers open %v, %d were freed twice", codec, d.open, d.twice)
		}
	}
}

// TestLoad_TrainsBesideReading: a source in memory is trained on while it is read. Measuring waits for the last row, and ends with the context if that never comes.
func TestLoad_TrainsBesideReading(t *testing.T) {
	costsIn(t)
	limit(t, time.Minute)
	before := measureDevice
	t.Cleanup(func() { measureDevice = before })
	for _, ends := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		read, readBefore := int64(0), int64(-1)
		measureDevice = func(m *measuring) (map[string]registry.Costs, error) {
			readBefore = read
			return before(m)
		}
		o := autoOptions()
		o.Context = ctx
		o.Progress = func(rows int64) {
			read = rows
			if ends {
				cancel()
			}
		}
		d := newAccelerator()
		tier, err := Load(d, SourceOf(autoTable, 64), o)
		switch all := int64(len(autoTable) / 64); {
		case ends && (!errors.Is(err, context.Canceled) || readBefore >= 0):
			t.Errorf("the context ends while rows are read: Load returned %v, the device was measured: %t", err, readBefore >= 0)
		case !ends && (err != nil || readBefore != all):
			t.Errorf("Load returned %v; when the device was measured %d of %d rows were read", err, readBefore, all)
		}
		if err == nil {
			tier.Close()
		}
		if len(d.open) != 0 {
			t.Errorf("buffers open: %v", d.open)
		}
		cancel()
	}
}

// TestLoad_EndsWhileMeasuring: no batch is measured once the context has ended, Load returns its error, not a tier that is served unmeasured, and
// nothing is kept.
func TestLoad_EndsWhileMeasuring(t *testing.T) {
	path := costsIn(t)
	limit(t, time.Minute)
	before := measureDevice
	t.Cleanup(func() { measureDevice = before })
	ctx, cancel := context.WithCancel(context.Background())
	d := launches{newAccelerator(), map[string]int{}}
	var begun map[string]int
	measureDevice = func(m *measuring) (map[string]registry.Costs, error) {
		begun = maps.Clone(d.of)
		m.d = endsAtLaunch{m.d, cancel}
		return before(m)
	}
	o := autoOptions()
	o.Context = ctx
	tier, err := Load(d, SourceOf(autoTable, 64), o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Load returned %v", err)
	}
	if err == nil {
		tier.Close()
	}
	measured := 0
	for name, n := range d.of {
		measured += n - begun[name]
	}
	if measured != 1 {
		t.Errorf("%d launches to measure the device, the context having ended with the first: %v before, %v after", measured, begun, d.of)
	}
	if a := d.Device.(*accelerator); len(a.open) != 0 || a.twice != 0 {
		t.Errorf("buffers open %v, %d were freed twice", slices.Sorted(maps.Values(a.open)), a.twice)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a measurement was kept")
	}
}

// endsAtLaunch is a device that calls a function at every launch.
type endsAtLaunch struct {
	device.Device
	call func()
}

type endingStream struct {
	device.Stream
	call func()
}

func (d endsAtLaunch) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return endingStream{s, d.call}, err
}

func (s endingStream) Launch(k device.Kernel) error {
	s.call()
	return s.Stream.Launch(k)
}
