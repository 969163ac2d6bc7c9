//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gorgonia.org/cu"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Device is one GPU. It implements device.Device.
type Device struct {
	gpu       driver.Device
	ordinal   int
	name      string
	sms       int // multiprocessors
	major     int // compute capability major.minor
	minor     int
	address   string    // on the PCI bus; "" if not known
	link      int64     // to the host, bytes a second; 0 if not known
	maxShared int       // bytes of dynamic shared memory that a block can have
	reads     []int     // ordinals of the other GPUs whose memory its kernels can read
	together  []*Device // opened by one call, this one included
	signals   bool      // the driver can signal that a launch has begun
	ctx       *driver.Context
	side      *driver.Stream // zeroes allocations; guarded by mu
	failed    atomic.Pointer[error]
	quota     device.Quota // of Alloc

	mu       sync.Mutex
	buffers  map[uint64]pageLocked     // allocations by address; nil for device memory. guarded by mu
	modules  map[*Module]*loadedModule // guarded by mu
	wrapped  map[uintptr]*Stream       // by handle. guarded by mu
	compiled sync.Map                  // *Function[A] → *loaded
	jit      atomic.Int32              // modules loaded as PTX
}

// ErrUnsupported is wrapped by Open's error if the kernels do not run on a GPU, or if access to another GPU's memory cannot be enabled.
var ErrUnsupported = errors.New("cuda: unsupported")

// Usable returns nil if there is a device to open, or an error that says why not.
func Usable() error {
	if err := driver.LoadError(); err != nil {
		return err
	}
	if driver.NumDevices() == 0 {
		return errors.New("cuda: the driver lists no device")
	}
	dev, err := driver.OpenDevice(0)
	if err != nil {
		return err
	}
	return supported(dev)
}

// supported returns an error for a GPU that the kernels do not run on.
func supported(dev driver.Device) error {
	major, minor, err := dev.ComputeCapability()
	if err != nil {
		return err
	}
	if major < 8 {
		return fmt.Errorf("%w: device %d has compute capability %d.%d; the kernels need 8.0", ErrUnsupported, dev.Ordinal(), major, minor)
	}
	return nil
}

// Open returns the first n GPUs: see OpenGPUs.
func Open(n int) ([]device.Device, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	if have := driver.NumDevices(); n < 1 || n > have {
		return nil, fmt.Errorf("cuda: devices (%d) must be 1 to %d", n, have)
	}
	ordinals := make([]int, n)
	for i := range ordinals {
		ordinals[i] = i
	}
	return OpenGPUs(ordinals)
}

// OpenGPUs returns the GPUs of the given ordinals, each of which may be given once. Each can access the memory of those others that it
// can reach: see CanRead.
func OpenGPUs(ordinals []int) (_ []device.Device, err error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	have := driver.NumDevices()
	for i, n := range ordinals {
		if n < 0 || n >= have {
			return nil, fmt.Errorf("cuda: GPU (%d) must be 0 to %d", n, have-1)
		}
		if slices.Contains(ordinals[:i], n) {
			return nil, fmt.Errorf("cuda: GPU (%d) must not be named twice", n)
		}
	}
	var devices []device.Device
	defer func() {
		if err != nil {
			for _, d := range devices {
				d.Close()
			}
		}
	}()
	for _, n := range ordinals {
		d, err := open(n)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	for _, d := range devices {
		for _, peer := range devices {
			d.(*Device).together = append(d.(*Device).together, peer.(*Device))
			if d == peer {
				continue
			}
			if err := d.(*Device).enablePeer(peer.(*Device)); err != nil {
				return nil, err
			}
		}
	}
	return devices, nil
}

// enablePeer gives the device's kernels access to a peer's memory, if the GPU can reach it.
func (d *Device) enablePeer(peer *Device) error {
	can, err := d.gpu.CanAccessPeer(peer.gpu)
	if err != nil || !can {
		return err
	}
	if err := d.ctx.EnablePeer(peer.ctx); err != nil {
		return fmt.Errorf("%w: device %d cannot read device %d's memory: %w", ErrUnsupported, d.ordinal, peer.ordinal, err)
	}
	d.reads = append(d.reads, peer.ordinal)
	return nil
}

// CanRead implements device.PeerReader. It is true only for devices of one call of OpenGPUs.
func (d *Device) CanRead(other device.Device) bool {
	of, ok := other.(*Device)
	return ok && (of == d || slices.Contains(d.reads, of.ordinal))
}

func open(ordinal int) (*Device, error) {
	dev, err := driver.OpenDevice(ordinal)
	if err != nil {
		return nil, err
	}
	d := &Device{gpu: dev, ordinal: ordinal, signals: driver.SignalsBegin(), buffers: map[uint64]pageLocked{}, modules: map[*Module]*loadedModule{}, wrapped: map[uintptr]*Stream{}}
	if d.name, err = dev.Name(); err != nil {
		return nil, err
	}
	if bus, err := dev.PCIBusID(); err == nil {
		d.address, d.link = strings.ToLower(bus), linkBytes(hostLink(bus))
	}
	if d.sms, err = dev.Attribute(cu.MultiprocessorCount); err != nil {
		return nil, err
	}
	if d.maxShared, err = dev.Attribute(driver.MaxSharedMemoryPerBlockOptin); err != nil {
		return nil, err
	}
	if err := supported(dev); err != nil {
		return nil, err
	}
	if d.major, d.minor, err = dev.ComputeCapability(); err != nil {
		return nil, err
	}
	if d.ctx, err = dev.Retain(); err != nil {
		return nil, err
	}
	if d.side, err = d.ctx.NewStream(); err != nil {
		return nil, errors.Join(err, d.ctx.Release())
	}
	return d, nil
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Kind: "cuda", Name: d.name, Index: d.ordinal, HostLink: d.link, Address: d.address}
}

// FreeMemory returns the bytes of device memory that are free.
func (d *Device) FreeMemory() (int64, error) {
	free, _, err := d.ctx.MemInfo()
	return free, d.note(err)
}

// Multiprocessors returns the number of multiprocessors.
func (d *Device) Multiprocessors() int { return d.sms }

// Functions returns the number of kernels that have been loaded.
func (d *Device) Functions() (n int) {
	d.compiled.Range(func(any, any) bool { n++; return true })
	return n
}

// Compiled returns the number of modules whose PTX the driver has compiled or taken from its cache, for want of machine code.
func (d *Device) Compiled() int { return int(d.jit.Load()) }

// MaxShared returns the most bytes of dynamic shared memory that a block can have.
func (d *Device) MaxShared() int { return d.maxShared }

// NeedsStaging implements device.Device.
func (d *Device) NeedsStaging() bool { return true }

// Limit implements device.Limiter.
func (d *Device) Limit(bytes int64, whose string) { d.quota.Limit(bytes, whose) }

// Err implements device.Device.
func (d *Device) Err() error {
	if e := d.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// note returns err, and keeps it for Err if it destroys the context.
func (d *Device) note(err error) error {
	if err != nil && driver.IsSticky(err) {
		lost := err // with &err, every call would allocate
		d.failed.CompareAndSwap(nil, &lost)
	}
	return err
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	if err := d.quota.Take(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	p, err := d.ctx.Alloc(max(bytes, 1))
	if err != nil {
		d.quota.Give(bytes)
		return device.Buffer{}, d.allocError(err, bytes, what)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.zeroLocked(p, max(bytes, 1)); err != nil {
		d.ctx.Free(p)
		d.quota.Give(bytes)
		return device.Buffer{}, d.allocError(err, bytes, what)
	}
	d.buffers[uint64(p)] = nil
	return device.DeviceBuffer(uint64(p), bytes), nil
}

// zeroLocked sets memory to zeros and waits until it is.
//
// REQUIRES: d.mu held
func (d *Device) zeroLocked(p driver.DevicePtr, bytes int64) error {
	return errors.Join(d.side.Fill8Async(p, 0, bytes), d.side.Synchronize())
}

// AllocHost implements device.Device. The memory is page-locked. Large memory has huge pages if the system provides them.
func (d *Device) AllocHost(bytes int64, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	if mapsHost(bytes) {
		if b, err := d.allocMapped(nil, bytes, what); err == nil {
			return b, nil
		}
	}
	m, err := d.ctx.AllocHost(max(bytes, 1))
	if err != nil {
		return device.Buffer{}, d.allocError(err, bytes, "page-locked "+what)
	}
	b := m.Bytes()[:bytes:bytes]
	clear(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[uint64(m.DevicePtr())] = m
	return device.MappedBuffer(b, uint64(m.DevicePtr())), nil
}

func (d *Device) allocError(err error, bytes int64, what string) error {
	d.note(err)
	if errors.Is(err, driver.OutOfMemory) {
		return fmt.Errorf("cuda: allocation for %s (%d bytes) on device %d: %w: %w", what, bytes, d.ordinal, device.ErrOutOfMemory, err)
	}
	return fmt.Errorf("cuda: allocation for %s (%d bytes): %w", what, bytes, err)
}

// Free implements device.Device. It fails only if the context is lost, and the memory with it: Err then says so.
func (d *Device) Free(b device.Buffer) {
	d.mu.Lock()
	m, ok := d.buffers[b.Addr()]
	delete(d.buffers, b.Addr())
	d.mu.Unlock()
	switch {
	case !ok:
	case m != nil:
		d.note(m.Free())
	default:
		d.note(d.ctx.Free(driver.DevicePtr(b.Addr())))
		d.quota.Give(b.Size())
	}
}

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) {
	s, err := d.ctx.NewStream()
	if err != nil {
		return nil, d.note(err)
	}
	return &Stream{device: d, stream: s}, nil
}

// WrapStream implements device.Device. handle is a CUstream of the device's primary context.
//
// Up to maxWrapped wrapped streams are kept, so that wrapping one again allocates nothing. The driver is asked every time which context
// the handle is of, because it may be that of a newer stream.
func (d *Device) WrapStream(handle uintptr) (device.Stream, error) {
	d.mu.Lock()
	known := d.wrapped[handle]
	d.mu.Unlock()
	if known != nil {
		if err := known.stream.CheckOwner(); err != nil {
			return nil, d.note(err)
		}
		return known, nil
	}
	s, err := d.ctx.WrapStream(handle)
	if err != nil {
		return nil, d.note(err)
	}
	w := &Stream{device: d, stream: s}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.wrapped) >= maxWrapped {
		clear(d.wrapped)
	}
	d.wrapped[handle] = w
	return w, nil
}

// maxWrapped is the number of wrapped streams that are kept.
const maxWrapped = 256

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) { return d.newEvent(false) }

// NewTimer implements device.Device.
func (d *Device) NewTimer() (device.Timer, error) { return d.newEvent(true) }

func (d *Device) newEvent(timing bool) (device.Timer, error) {
	e, err := d.ctx.NewEvent(timing)
	if err != nil {
		return nil, d.note(err)
	}
	return &Event{device: d, event: e}, nil
}

// Close implements device.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for def, m := range d.modules {
		if m.module != nil {
			errs = append(errs, m.module.Unload())
		}
		delete(d.modules, def)
	}
	d.compiled.Clear()
	errs = append(errs, d.side.Destroy(), d.ctx.Release())
	if d.Err() != nil {
		return nil // calls in a lost context fail, and its memory is gone
	}
	return errors.Join(errs...)
}

// Count returns the number of GPUs that the driver lists.
func Count() int { return driver.NumDevices() }
