//go:build cuda && linux

package cuda

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Module is device code that a device loads when it first needs it.
type Module struct {
	Name string
	// Machine, if not nil, returns machine code for devices of a compute capability, or nil if there is none for them. It is loaded as it is; PTX
	// has to be compiled by the driver first, which takes up to seconds where the driver's cache does not have it.
	Machine func(major, minor int) []byte
	// PTX returns the text, for devices that have no machine code or whose driver refuses it. Each device calls it at most once.
	PTX func() ([]byte, error)
}

// Function is a kernel of a module. It takes one parameter, a struct A by value.
type Function[A any] struct {
	module   *Module
	name     string
	carveout int // percent; 0: the driver's choice
}

// NewFunction returns the kernel of that name. Nothing is loaded before it is launched.
func NewFunction[A any](m *Module, name string) *Function[A] {
	return &Function[A]{module: m, name: name}
}

// PreferShared makes multiprocessors use as much of their memory as they can as shared memory while the kernel runs. It returns f, and
// must be called before the first launch. By default the driver provides only what the kernel's own blocks can use. Until they have
// ended, no block of another kernel that needs more can begin on that multiprocessor.
func (f *Function[A]) PreferShared() *Function[A] {
	f.carveout = 100
	return f
}

// Name returns the kernel's name.
func (f *Function[A]) Name() string { return f.name }

// Module returns the kernel's module.
func (f *Function[A]) Module() *Module { return f.module }

// loaded is a function on one device.
type loaded struct {
	function *driver.Function
	blocks   atomic.Pointer[fit] // the last answer of Resident
}

// fit is the number of blocks that fit a multiprocessor, for blocks of so many threads and bytes of dynamic shared memory.
type fit struct{ threads, shared, blocks int }

// Load loads the function on a device, with its module, so that its first launch does not. Functions of different modules can be loaded at
// the same time.
func (f *Function[A]) Load(d *Device) error {
	_, err := f.on(d)
	return err
}

// loadedModule is a module on one device.
type loadedModule struct {
	sync.Mutex
	module *driver.Module // nil before the first use. guarded by the mutex
}

// on returns the function on a device, and loads its module there if this is its first use. The driver may load functions lazily: that the
// attributes of a function are asked for and set makes it load it.
func (f *Function[A]) on(d *Device) (*loaded, error) {
	if l, ok := d.compiled.Load(f); ok {
		return l.(*loaded), nil
	}
	d.mu.Lock()
	m := d.modules[f.module]
	if m == nil {
		m = &loadedModule{}
		d.modules[f.module] = m
	}
	d.mu.Unlock()
	m.Lock()
	defer m.Unlock()
	if l, ok := d.compiled.Load(f); ok {
		return l.(*loaded), nil
	}
	if m.module == nil {
		var err error
		if m.module, err = d.load(f.module); err != nil {
			return nil, d.note(fmt.Errorf("cuda: module %s: %w", f.module.Name, err))
		}
	}
	k, err := m.module.Function(f.name)
	if err != nil {
		return nil, d.note(err)
	}
	static, err := k.Attribute(driver.SharedBytes)
	if err != nil {
		return nil, d.note(err)
	}
	if err := k.SetAttribute(driver.MaxDynamicShared, d.maxShared-static); err != nil {
		return nil, d.note(err)
	}
	if f.carveout != 0 {
		if err := k.SetAttribute(driver.SharedCarveout, f.carveout); err != nil {
			return nil, d.note(err)
		}
	}
	l := &loaded{function: k}
	d.compiled.Store(f, l)
	return l, nil
}

// onlyPTX has machine code left alone, to test what the driver makes of PTX.
var onlyPTX = os.Getenv("TENSORCACHE_PTX") == "1"

// load loads a module's machine code, or else has its PTX compiled.
func (d *Device) load(m *Module) (*driver.Module, error) {
	if m.Machine != nil && !onlyPTX {
		if code := m.Machine(d.major, d.minor); code != nil {
			if loaded, err := d.ctx.LoadModule(code); err == nil {
				return loaded, nil
			} // a driver older than the code's compiler may refuse it
		}
	}
	text, err := m.PTX()
	if err != nil {
		return nil, err
	}
	d.jit.Add(1)
	return d.ctx.LoadModule(text)
}

// Launch enqueues the kernel on a grid of blocks, with so many bytes of dynamic shared memory a block. args is copied.
func (f *Function[A]) Launch(s *Stream, blocks, threads, shared int, args *A) error {
	return f.LaunchBegun(s, blocks, threads, shared, args, nil)
}

// LaunchBegun is Launch. begun, if not nil, passes once all blocks have begun, or before the launch if the driver cannot signal that.
func (f *Function[A]) LaunchBegun(s *Stream, blocks, threads, shared int, args *A, begun device.Event) error {
	l, err := f.on(s.device)
	if err != nil {
		return err
	}
	var event *driver.Event
	if begun != nil {
		if s.device.signals {
			event = begun.(*Event).event
		} else if err := s.Record(begun); err != nil {
			return err
		}
	}
	if s.sequence != nil {
		s.sequence.Launch(s.stream, l.function, blocks, threads, shared, unsafe.Pointer(args), unsafe.Sizeof(*args), event)
		return nil
	}
	return s.device.note(l.function.Launch(s.stream, blocks, threads, shared, unsafe.Pointer(args), event))
}

// Resident returns how many blocks of so many threads and bytes of dynamic shared memory the device runs at once.
func (f *Function[A]) Resident(d *Device, threads, shared int) (int, error) {
	l, err := f.on(d)
	if err != nil {
		return 0, err
	}
	if known := l.blocks.Load(); known != nil && known.threads == threads && known.shared == shared {
		return known.blocks * d.sms, nil
	}
	n, err := l.function.MaxActiveBlocks(threads, int64(shared))
	if err != nil {
		return 0, d.note(err)
	}
	if n == 0 {
		return 0, fmt.Errorf("cuda: kernel %s does not fit with %d threads and %d bytes of shared memory", f.name, threads, shared)
	}
	l.blocks.Store(&fit{threads, shared, n})
	return n * d.sms, nil
}
