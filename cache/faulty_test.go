package cache_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
)

// faulty are emulated devices that tests can make fail for good, as GPUs do by a sticky error. Not all of them need be able to read each
// other's memory.
type faulty struct {
	devices []*faultyDevice
	// islands has a number for each device. Devices with equal numbers read each other's memory; if nil, all do.
	islands []int
	stores  atomic.Pointer[chan struct{}] // changes of hashmaps wait until it is closed, nil for none
	serves  atomic.Pointer[chan struct{}] // a batch sends to it when it has begun, and looks rows up when it is closed; nil for none
	// kind, if not "", is what the devices say they are. launched, if not nil, is called when a device has run a kernel.
	kind     string
	launched func(device int, kernel string)
	// refused, if not nil, returns an error of a launch that does not make the device fail for good.
	refused func(device int, kernel string) error
	// allocating, if not nil, is called before a device gives memory.
	allocating func(device int, what string)
}

var errScriptedLoss = errors.New("scripted to be lost")

// openFaulty makes caches on the host backend use faulty devices until the test ends.
func openFaulty(t *testing.T, islands []int) *faulty {
	f := &faulty{islands: islands}
	cache.OpenHostWith(t, f.open)
	return f
}

func (f *faulty) open(n, workers int) []device.Device {
	f.devices = nil
	devices := host.Open(n, workers)
	for i, d := range devices {
		f.devices = append(f.devices, &faultyDevice{Device: slowDevice{d}, all: f, index: i})
		devices[i] = f.devices[i]
	}
	return devices
}

// lose makes a device fail from now on.
func (f *faulty) lose(i int) { f.devices[i].lost.Store(true) }

// spoil overwrites the slab of a device, because the memory of a lost device may hold anything.
func (f *faulty) spoil(i int) {
	d := f.devices[i]
	d.mu.Lock()
	defer d.mu.Unlock()
	for j := range d.slab.Bytes() {
		d.slab.Bytes()[j] = 0xdb
	}
}

type faultyDevice struct {
	device.Device
	all   *faulty
	index int
	lost  atomic.Bool
	mu    sync.Mutex
	slab  device.Buffer
	buddy int64 // bytes of overflow places that it has been asked for
}

func (d *faultyDevice) Err() error {
	if d.lost.Load() {
		return errScriptedLoss
	}
	return d.Device.Err()
}

func (d *faultyDevice) Info() device.Info {
	info := d.Device.Info()
	if d.all.kind != "" {
		info.Kind = d.all.kind
	}
	return info
}

func (d *faultyDevice) CanRead(other device.Device) bool {
	return d.all.islands == nil || d.all.islands[d.index] == d.all.islands[other.(*faultyDevice).index]
}

func (d *faultyDevice) Alloc(bytes int64, what string) (device.Buffer, error) {
	if f := d.all.allocating; f != nil {
		f(d.index, what)
	}
	if err := d.Err(); err != nil {
		return device.Buffer{}, err
	}
	b, err := d.Device.Alloc(bytes, what)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch what {
	case "slab":
		d.slab = b
	case "buddy memory":
		d.buddy += bytes
	}
	return b, err
}

func (d *faultyDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return faultyStream{s, d}, errors.Join(err, d.Err())
}

func (d *faultyDevice) WrapStream(handle uintptr) (device.Stream, error) {
	s, err := d.Device.WrapStream(handle)
	return faultyStream{s, d}, errors.Join(err, d.Err())
}

type faultyStream struct {
	device.Stream
	d *faultyDevice
}

func (s faultyStream) Launch(k device.Kernel) error {
	if err := s.d.Err(); err != nil {
		return err
	}
	if f := s.d.all.refused; f != nil {
		if err := f(s.d.index, k.Name()); err != nil {
			return err
		}
	}
	if hold := s.d.all.stores.Load(); hold != nil && k.Name() == "store" {
		<-*hold
	}
	if hold := s.d.all.serves.Load(); hold != nil && k.Name() == "serve" {
		*hold <- struct{}{}
		<-*hold
	}
	err := s.Stream.Launch(k)
	if f := s.d.all.launched; f != nil {
		f(s.d.index, k.Name())
	}
	return errors.Join(err, s.d.Err()) // it may be lost meanwhile
}

func (s faultyStream) Synchronize() error { return errors.Join(s.Stream.Synchronize(), s.d.Err()) }
