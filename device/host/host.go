// Package host is the pure-Go backend. It emulates devices with the memory and the processors of the host.
//
// A stream runs each kernel before Launch returns, its parallel parts on goroutines. Kernels overlap only if callers use
// several streams from several goroutines.
package host

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// Device is one emulated device.
type Device struct {
	index   int
	workers workers
	memory  sync.Map     // what Free frees: address (*byte) → *block
	quota   device.Quota // of Alloc
}

// block is memory that Free frees.
type block struct {
	*numa.Memory
	taken int64 // of the quota
}

// Open returns n emulated devices that run their kernels on the given number of goroutines; 0 means GOMAXPROCS.
func Open(n, workerCount int) []device.Device {
	devices := make([]device.Device, n)
	for i := range devices {
		devices[i] = &Device{index: i, workers: workersOf(workerCount)}
	}
	return devices
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Kind: "host", Name: fmt.Sprintf("%s/%s, %d workers", runtime.GOOS, runtime.GOARCH, int(d.workers)), Index: d.index}
}

// Alloc implements device.Device. Large blocks are outside the Go heap, and Free gives them back to the system at once.
func (d *Device) Alloc(bytes int64, what string) (device.Buffer, error) {
	if err := d.quota.Take(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	b, err := d.alloc("allocation for "+what, bytes, bytes, what, numa.New)
	if err != nil {
		d.quota.Give(bytes)
	}
	return b, err
}

// Limit implements device.Limiter.
func (d *Device) Limit(bytes int64, whose string) { d.quota.Limit(bytes, whose) }

// AllocHost implements device.Device.
func (d *Device) AllocHost(bytes int64, what string) (device.Buffer, error) {
	return d.alloc("allocation for "+what, bytes, 0, what, numa.New)
}

// AllocHostOn implements device.NodeAllocator.
func (d *Device) AllocHostOn(nodes []int, bytes int64, what string) (device.Buffer, error) {
	return d.alloc("allocation for "+what, bytes, 0, what, func(bytes int64) (*numa.Memory, error) { return numa.Alloc(max(bytes, 1), nodes) })
}

// alloc returns memory of from, of which so much of the quota is taken. call says in errors what failed.
func (d *Device) alloc(call string, bytes, taken int64, what string, from func(int64) (*numa.Memory, error)) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	m, err := from(bytes)
	if errors.Is(err, numa.ErrNoMemory) {
		err = fmt.Errorf("%w: %w", device.ErrOutOfMemory, err)
	}
	if err != nil {
		return device.Buffer{}, fmt.Errorf("host: %s: %w", call, err)
	}
	b := m.Bytes()[:bytes:bytes]
	d.memory.Store(unsafe.SliceData(b), &block{m, taken})
	return device.HostBuffer(b), nil
}

// Free implements device.Device.
func (d *Device) Free(b device.Buffer) {
	if m, ok := d.memory.LoadAndDelete(unsafe.SliceData(b.Bytes())); ok {
		m.(*block).Free()
		d.quota.Give(m.(*block).taken)
	}
}

// AdoptHost implements device.HostAdopter.
func (d *Device) AdoptHost(mem []byte, what string) (device.Buffer, error) {
	return device.HostBuffer(slices.Clip(mem)), nil
}

// Reaches implements device.HostAdopter.
func (d *Device) Reaches(device.Buffer) error { return nil }

// Discard implements device.Discarder.
func (d *Device) Discard(b device.Buffer, from, to int64) {
	if m, ok := d.memory.Load(unsafe.SliceData(b.Bytes())); ok {
		m.(*block).Discard(from, to)
	}
}

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) { return stream{d.workers}, nil }

// WrapStream implements device.Device. The host backend has no handles and ignores the argument.
func (d *Device) WrapStream(uintptr) (device.Stream, error) { return stream{d.workers}, nil }

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) { return event{}, nil }

// NewTimer implements device.Device.
func (d *Device) NewTimer() (device.Timer, error) { return &timer{}, nil }

// Err implements device.Device. It is always nil.
func (d *Device) Err() error { return nil }

// NeedsStaging implements device.Device.
func (d *Device) NeedsStaging() bool { return false }

// Close implements device.Device.
func (d *Device) Close() error { return nil }

type stream struct{ workers workers }

func (s stream) Launch(k device.Kernel) error {
	k.RunHost(s.workers)
	return nil
}

func (s stream) Copy(dst, src device.Buffer) error {
	if dst.Size() != src.Size() {
		return fmt.Errorf("host: copy of %d bytes to %d", src.Size(), dst.Size())
	}
	copy(dst.Bytes(), src.Bytes())
	return nil
}

func (s stream) Fill(dst device.Buffer, value byte) error {
	b := dst.Bytes()
	if len(b) == 0 {
		return nil
	}
	b[0] = value
	for n := 1; n < len(b); { // from what is in the cache
		n += copy(b[n:], b[:min(n, 1<<15)])
	}
	return nil
}

// WriteValue32 implements device.ValueWriter.
func (s stream) WriteValue32(dst device.Buffer, value uint32) error {
	if dst.Size() != 4 {
		return fmt.Errorf("host: value of 4 bytes written to %d", dst.Size())
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(unsafe.SliceData(dst.Bytes()))), value)
	return nil
}

// Record implements device.Stream. Work is done before the call that enqueues it returns, so events have always passed.
func (s stream) Record(e device.Event) error {
	if t, ok := e.(*timer); ok {
		t.passed.Store(int64(time.Since(began)))
	}
	return nil
}

func (s stream) Wait(device.Event) error  { return nil }
func (s stream) Synchronize() error       { return nil }
func (s stream) Capturing() (bool, error) { return false, nil }
func (s stream) Close()                   {}

type event struct{}

func (event) Passed() (bool, error) { return true, nil }
func (event) Synchronize() error    { return nil }
func (event) Close()                {}

// began is the zero of all timers.
var began = time.Now()

// timer is an event that keeps the time of its passing, by the host's monotonic clock.
type timer struct {
	event
	passed atomic.Int64 // nanoseconds since began
}

// Since implements device.Timer.
func (t *timer) Since(start device.Timer) (time.Duration, error) {
	return time.Duration(t.passed.Load() - start.(*timer).passed.Load()), nil
}

// Workers returns the workers of a kernel that is to run on n goroutines; 0 means GOMAXPROCS.
func Workers(n int) device.Workers { return workersOf(n) }

func workersOf(n int) workers {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return workers(n)
}

// workers is the number of goroutines that run a kernel's parallel parts.
type workers int

// For implements device.Workers. Each goroutine takes one part at a time, which balances parts of unequal cost.
func (w workers) For(n, grain int, body func(from, to int)) { w.Range(n, grain, rangeFunc(body)) }

// rangeFunc is a function as a device.Ranger.
type rangeFunc func(from, to int)

func (f rangeFunc) Range(from, to int) { f(from, to) }

// Range implements device.Workers.
func (w workers) Range(n, grain int, r device.Ranger) {
	parts := (n + grain - 1) / grain
	if parts <= 1 || w == 1 {
		for from := 0; from < n; from += grain {
			r.Range(from, min(from+grain, n))
		}
		return
	}
	var next atomic.Int64
	run := func() {
		for {
			from := int(next.Add(1)-1) * grain
			if from >= n {
				return
			}
			r.Range(from, min(from+grain, n))
		}
	}
	var wg sync.WaitGroup
	for range min(int(w), parts) - 1 {
		wg.Go(run)
	}
	run()
	wg.Wait()
}
