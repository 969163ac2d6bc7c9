// Package device says what a backend is: memory, streams and kernel launches of one or more devices.
//
// The host backend (device/host) is pure Go: its device memory is Go memory and its kernels run on goroutines, with the
// formats of the others byte for byte. It is the embedded default and the oracle for the others.
//
// A [Buffer] is a value that names memory; the [Device] that allocated it owns the memory until Free or Close. Devices
// are safe for concurrent use; a [Stream] is used by one goroutine at a time.
package device

import (
	"errors"
	"fmt"
)

// ErrOutOfMemory is wrapped by allocation errors when the device has too little memory left.
var ErrOutOfMemory = errors.New("device: out of memory")

// Buffer is a span of memory that kernels can address.
type Buffer struct {
	host []byte
	size int64
}

// HostBuffer returns the buffer of memory that the host sees as b. The memory must outlive the buffer's use.
func HostBuffer(b []byte) Buffer { return Buffer{host: b, size: int64(len(b))} }

// Size returns the length in bytes.
func (b Buffer) Size() int64 { return b.size }

// Bytes returns the memory as the host sees it, or nil where the host cannot address it.
func (b Buffer) Bytes() []byte { return b.host }

// Slice returns the part of the buffer from byte from up to byte to.
func (b Buffer) Slice(from, to int64) Buffer {
	if b.host != nil {
		b.host = b.host[from:to:to]
	}
	b.size = to - from
	return b
}

// Info describes a device.
type Info struct {
	Kind  string // "host" or "cuda"
	Name  string // what the device calls itself
	Index int    // place among the devices of the backend
}

// Device is one GPU, or one that the host emulates.
type Device interface {
	Info() Info
	// Alloc returns device memory of the given bytes, zeroed and aligned to 128 bytes; what is it for, for errors.
	Alloc(bytes int64, what string) (Buffer, error)
	// AllocHost returns host memory that every device of the backend can address: page-locked where there are GPUs.
	AllocHost(bytes int64, what string) (Buffer, error)
	// Free gives a buffer back. Nothing may use it any more. Giving back the zero Buffer does nothing.
	Free(Buffer)
	// NewStream returns a new stream.
	NewStream() (Stream, error)
}

// Stream is a queue of work that a device does in order. Work on different streams may overlap.
type Stream interface {
	// Launch enqueues a kernel. The kernel's arguments must stay valid until it has run.
	Launch(Kernel) error
	// Record returns an event that has passed when all work enqueued so far is done.
	Record() (Event, error)
	// Wait makes later work on the stream wait for the event.
	Wait(Event) error
	// Synchronize blocks until all work enqueued so far is done.
	Synchronize() error
	// Close releases the stream. It must be idle.
	Close()
}

// Event is a point in a stream.
type Event any

// Kernel is one operation with its launch arguments.
type Kernel interface {
	// Name is the kernel's name, for errors and traces.
	Name() string
	// RunHost executes the kernel on the host.
	RunHost(Workers)
}

// Workers runs the parallel parts of a kernel on the host.
type Workers interface {
	// For calls body for consecutive parts of [0, n), each at most grain long, several at once, and returns when all
	// are done.
	For(n, grain int, body func(from, to int))
}

// CheckSize returns an error for a negative or absurd allocation.
func CheckSize(bytes int64, what string) error {
	if bytes < 0 || bytes > 1<<46 {
		return fmt.Errorf("device: allocation for %s (%d bytes) must be 0 to 2^46: %w", what, bytes, ErrOutOfMemory)
	}
	return nil
}
