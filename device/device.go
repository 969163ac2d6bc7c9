// Package device defines what a backend implements: memory, streams and kernel launches of one or more devices.
//
// The host backend (device/host) is pure Go. Its device memory is host memory, its kernels run on goroutines, and all its
// formats are those of the CUDA backend (device/cuda), byte for byte. It is the default, and tests compare the CUDA backend
// with it.
//
// A [Buffer] is a value that refers to memory. The [Device] that allocated the memory owns it until Free or Close. Devices
// are safe for concurrent use. A [Stream] is used by one goroutine at a time.
package device

import (
	"errors"
	"fmt"
	"time"
)

// ErrOutOfMemory is wrapped by allocation errors when the device has too little memory left.
var ErrOutOfMemory = errors.New("device: out of memory")

// Info describes a device.
type Info struct {
	Kind  string // "host" or "cuda"
	Name  string // the device's own name
	Index int    // position among the devices of the backend, -1 for one that this process does not see
	// HostLink is the nominal rate of the device's link to host memory in bytes per second, 0 if unknown.
	HostLink int64
	// Address is the device's PCI address, such as "0000:1b:00.0", or "" if it has none.
	Address string
}

// Device is a GPU, or one that the host emulates.
type Device interface {
	Info() Info
	// Alloc returns zeroed device memory, aligned to 128 bytes. what says in errors what the memory is for.
	Alloc(bytes int64, what string) (Buffer, error)
	// AllocHost returns zeroed host memory that every device of the backend can address. With GPUs it is page-locked.
	AllocHost(bytes int64, what string) (Buffer, error)
	// Free frees a buffer of Alloc or AllocHost, which must no longer be in use. The zero Buffer is ignored.
	Free(Buffer)
	// NeedsStaging says that kernels and copies cannot address Go memory: row numbers and rows pass through page-locked memory.
	NeedsStaging() bool
	// NewStream returns a new stream.
	NewStream() (Stream, error)
	// WrapStream returns a stream for a handle of the backend, a CUstream. The caller keeps ownership of the handle: Close
	// does not destroy it.
	WrapStream(handle uintptr) (Stream, error)
	// NewEvent returns an event. Until it is recorded, it counts as passed.
	NewEvent() (Event, error)
	// NewTimer returns an event that remembers when it passed.
	NewTimer() (Timer, error)
	// Err returns the error that made the device unusable for good, or nil.
	Err() error
	// Close releases the device. Its buffers must be freed and its streams and events closed before.
	Close() error
}

// PeerReader is implemented by devices that may be unable to read another device's memory. The kernels of a Device that does
// not implement it can read the memory of all devices of the backend.
type PeerReader interface {
	// CanRead reports whether the device's kernels can read memory that other has allocated.
	CanRead(other Device) bool
}

// Stream is a queue of work that a device executes in order. Work on different streams may overlap.
type Stream interface {
	// Launch enqueues a kernel. The kernel and its buffers must stay valid until it has run.
	Launch(Kernel) error
	// Copy enqueues a copy of src to dst, which must be of the same length. At least one of them must be device memory or
	// page-locked. Go memory must stay pinned until the copy is done.
	Copy(dst, src Buffer) error
	// Fill enqueues setting every byte of dst to value.
	Fill(dst Buffer, value byte) error
	// Record makes the event pass once all work enqueued so far is done.
	Record(Event) error
	// Wait makes later work on the stream wait for the event as last recorded.
	Wait(Event) error
	// Synchronize blocks until all work enqueued so far is done.
	Synchronize() error
	// Capturing reports whether enqueued work is captured into a graph instead of being executed.
	Capturing() (bool, error)
	// Close releases the stream, which must be idle.
	Close()
}

// Capturer is a Stream that can capture graphs and say when they have been destroyed.
type Capturer interface {
	// HoldCapture returns a hold on the graph that the stream captures.
	HoldCapture() (Hold, error)
}

// Hold says when a graph has been destroyed. It is used by one goroutine at a time.
type Hold interface {
	// Over says whether the graph, and all that was instantiated of it, has been destroyed and runs no more. It does not call the driver,
	// and must not be called after Free.
	Over() bool
	// Free gives the hold up.
	Free()
}

// ValueWriter is a Stream that can store one word without a kernel.
type ValueWriter interface {
	// WriteValue32 enqueues the store of a value to 4 aligned bytes. Kernels that are running see it once all work enqueued
	// before it is done.
	WriteValue32(dst Buffer, value uint32) error
}

// RowCopier is a Stream that can copy rows to places that lie apart.
type RowCopier interface {
	// CopyRows enqueues a copy of the rows of rowBytes bytes that lie back to back in src, device memory, to dst, where each begins stride
	// bytes after the one before it. The bytes in between stay as they are. dst ends with its last row.
	CopyRows(dst Buffer, stride int64, src Buffer, rowBytes int64) error
}

// Sequencer is a Device that can enqueue several pieces of work by one call of its driver.
type Sequencer interface {
	// NewSequence returns an empty sequence.
	NewSequence() Sequence
}

// Sequence collects work for streams of one device and then enqueues it in order. After its first use it allocates nothing.
// It is used by one goroutine at a time.
type Sequence interface {
	// On returns a view of stream s that collects launches, records and waits. Any other call on it first enqueues what has
	// been collected. The view is valid until Enqueue or Drop, and need not be closed.
	On(s Stream) Stream
	// Enqueue enqueues the collected work. After an error a part of it may have been enqueued; the rest is dropped.
	Enqueue() error
	// Drop discards the collected work.
	Drop()
}

// Event is a point in a stream.
type Event interface {
	// Passed reports whether the event has passed.
	Passed() (bool, error)
	// Synchronize blocks until the event has passed.
	Synchronize() error
	Close()
}

// Timer is an Event that keeps the time at which it last passed. Recording it costs a little more.
type Timer interface {
	Event
	// Since returns the time from start's passing to this timer's. Both must be of one device and have passed. The
	// resolution is half a microsecond.
	Since(start Timer) (time.Duration, error)
}

// Kernel is one operation with its launch arguments.
type Kernel interface {
	// Name is the kernel's name, for errors and traces.
	Name() string
	// RunHost executes the kernel on the host.
	RunHost(Workers)
}

// Workers runs the parallel parts of a kernel on the host.
type Workers interface {
	// For calls body for consecutive parts of [0, n), each at most grain long, some of them concurrently, and returns when
	// all calls have returned.
	For(n, grain int, body func(from, to int))
	// Range is For by a method, which need not be allocated as a function must.
	Range(n, grain int, r Ranger)
}

// Ranger does a part of the work of Workers.Range.
type Ranger interface{ Range(from, to int) }

// CheckSize returns an error, which wraps ErrOutOfMemory, unless bytes is 0 to 2^46.
func CheckSize(bytes int64, what string) error {
	if bytes < 0 || bytes > 1<<46 {
		return fmt.Errorf("device: allocation for %s (%d bytes) must be 0 to 2^46: %w", what, bytes, ErrOutOfMemory)
	}
	return nil
}
