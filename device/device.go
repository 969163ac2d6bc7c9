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
	"time"
)

// ErrOutOfMemory is wrapped by allocation errors when the device has too little memory left.
var ErrOutOfMemory = errors.New("device: out of memory")

// Info describes a device.
type Info struct {
	Kind  string // "host" or "cuda"
	Name  string // what the device calls itself
	Index int    // place among the devices of the backend
	// HostLink is how many bytes a second the device can read from host memory by what its link is made for, 0 if not known.
	HostLink int64
	// Address is the device's on the PCI bus, such as "0000:1b:00.0"; "" where it has none.
	Address string
}

// Device is one GPU, or one that the host emulates.
type Device interface {
	Info() Info
	// Alloc returns device memory of the given bytes, zeroed and aligned to 128 bytes; what is it for, for errors.
	Alloc(bytes int64, what string) (Buffer, error)
	// AllocHost returns zeroed host memory that every device of the backend can address: page-locked where there are
	// GPUs.
	AllocHost(bytes int64, what string) (Buffer, error)
	// Free gives a buffer of Alloc or AllocHost back. Nothing may use it any more. The zero Buffer is ignored.
	Free(Buffer)
	// NeedsStaging says that kernels and copies cannot address Go memory: row numbers and rows pass through page-locked memory.
	NeedsStaging() bool
	// NewStream returns a new stream.
	NewStream() (Stream, error)
	// WrapStream returns a stream for the backend's own handle of one (a CUstream), which stays the caller's: Close
	// leaves it alone.
	WrapStream(handle uintptr) (Stream, error)
	// NewEvent returns an event that counts as passed until it is recorded.
	NewEvent() (Event, error)
	// NewTimer returns an event that remembers when it passed.
	NewTimer() (Timer, error)
	// Err returns the error after which the device can do nothing more, or nil.
	Err() error
	// Close gives the device back. Its buffers, streams and events must be closed before.
	Close() error
}

// PeerReader is a Device whose kernels may not be able to read every other device's memory. Those of other devices can.
type PeerReader interface {
	// CanRead says whether the device's kernels read memory that other has allocated.
	CanRead(other Device) bool
}

// Stream is a queue of work that a device does in order. Work on different streams may overlap.
type Stream interface {
	// Launch enqueues a kernel. The kernel's arguments must stay valid until it has run.
	Launch(Kernel) error
	// Copy enqueues a copy of src to dst, which must be as long. At least one of them is device memory or page-locked;
	// memory that is neither must stay pinned until the stream has passed the copy.
	Copy(dst, src Buffer) error
	// Fill enqueues setting every byte of dst to value.
	Fill(dst Buffer, value byte) error
	// Record makes the event pass when all work enqueued so far is done.
	Record(Event) error
	// Wait makes later work on the stream wait for the event's last record.
	Wait(Event) error
	// Synchronize blocks until all work enqueued so far is done.
	Synchronize() error
	// Capturing says whether work is recorded into a graph instead of being done.
	Capturing() (bool, error)
	// Close releases the stream. It must be idle.
	Close()
}

// ValueWriter is a Stream that can store a word.
type ValueWriter interface {
	// WriteValue32 enqueues the store of 4 aligned bytes, which kernels that run meanwhile see once all that was enqueued before
	// is done.
	WriteValue32(dst Buffer, value uint32) error
}

// Sequencer is a Device whose driver is better called once for several pieces of work.
type Sequencer interface {
	// NewSequence returns an empty sequence.
	NewSequence() Sequence
}

// Sequence is work for streams of one device, collected and then enqueued in its order. It allocates nothing once it has been
// used. Used by one goroutine at a time.
type Sequence interface {
	// On returns stream s as one whose launches, records and waits are collected; any other call enqueues first what has been
	// collected. It is valid until the sequence is enqueued or dropped, and is not closed.
	On(s Stream) Stream
	// Enqueue enqueues what has been collected. After an error some of it may have been, and the rest is dropped.
	Enqueue() error
	// Drop drops what has been collected.
	Drop()
}

// Event is a point in a stream.
type Event interface {
	// Passed says whether the event has passed, and Synchronize blocks until it has.
	Passed() (bool, error)
	Synchronize() error
	Close()
}

// Timer is an Event that remembers when it last passed. Recording one costs a little more.
type Timer interface {
	Event
	// Since returns the time from when start passed to when this one did. Both are of one device, and have passed; the
	// difference is known to half a microsecond, and to a ten-millionth of itself.
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
