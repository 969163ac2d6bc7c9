//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Stream is a CUDA stream. It implements device.Stream.
type Stream struct {
	device   *Device
	stream   *driver.Stream
	sequence *driver.Sequence // collects launches, records and waits; nil if they are enqueued at once
}

// Kernel is a device.Kernel that can run on a GPU.
type Kernel interface {
	device.Kernel
	// RunCUDA enqueues the kernel's launches.
	RunCUDA(*Stream) error
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.device }

// Handle returns the CUstream.
func (s *Stream) Handle() uintptr { return s.stream.Handle() }

// Launch implements device.Stream.
func (s *Stream) Launch(k device.Kernel) error {
	if err := s.device.Err(); err != nil {
		return err
	}
	on, ok := k.(Kernel)
	if !ok {
		return fmt.Errorf("cuda: kernel %s does not run on GPUs", k.Name())
	}
	if err := on.RunCUDA(s); err != nil {
		return fmt.Errorf("%s: %w", k.Name(), s.device.note(err))
	}
	return nil
}

// Copy implements device.Stream.
func (s *Stream) Copy(dst, src device.Buffer) error {
	n := src.Size()
	if dst.Size() != n {
		return fmt.Errorf("cuda: copy of %d bytes to %d", n, dst.Size())
	}
	if n == 0 {
		return nil
	}
	err := s.flush()
	if err != nil {
		return err
	}
	switch to, from := dst.Bytes(), src.Bytes(); {
	case to == nil && from == nil:
		err = s.stream.CopyAsync(driver.DevicePtr(dst.Addr()), driver.DevicePtr(src.Addr()), n)
	case to == nil:
		err = s.stream.CopyToDeviceAsync(driver.DevicePtr(dst.Addr()), unsafe.Pointer(unsafe.SliceData(from)), n)
	case from == nil:
		err = s.stream.CopyToHostAsync(unsafe.Pointer(unsafe.SliceData(to)), driver.DevicePtr(src.Addr()), n)
	default:
		return fmt.Errorf("cuda: copy of %d bytes within the host", n)
	}
	return s.device.note(err)
}

// CopyRows implements device.RowCopier.
func (s *Stream) CopyRows(dst device.Buffer, stride int64, src device.Buffer, rowBytes int64) error {
	if rowBytes < 1 || src.Size()%rowBytes != 0 {
		return fmt.Errorf("cuda: copy of %d bytes must be rows of %d", src.Size(), rowBytes)
	}
	rows := src.Size() / rowBytes
	if rows == 0 {
		return nil
	}
	if stride < rowBytes || dst.Size() != (rows-1)*stride+rowBytes {
		return fmt.Errorf("cuda: copy of %d rows of %d bytes to %d bytes, %d apart", rows, rowBytes, dst.Size(), stride)
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.device.note(s.stream.CopyRowsAsync(driver.DevicePtr(dst.Addr()), stride, driver.DevicePtr(src.Addr()), rowBytes, rows))
}

// Fill implements device.Stream.
func (s *Stream) Fill(dst device.Buffer, value byte) error {
	if dst.Size() == 0 {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.device.note(s.stream.Fill8Async(driver.DevicePtr(dst.Addr()), value, dst.Size()))
}

// WriteValue32 implements device.ValueWriter. It returns an error if the driver does not support it.
func (s *Stream) WriteValue32(dst device.Buffer, value uint32) error {
	if dst.Size() != 4 {
		return fmt.Errorf("cuda: value of 4 bytes written to %d", dst.Size())
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.device.note(s.stream.WriteValue32(driver.DevicePtr(dst.Addr()), value))
}

// Record implements device.Stream.
func (s *Stream) Record(e device.Event) error {
	if s.sequence != nil {
		s.sequence.Record(s.stream, e.(*Event).event)
		return nil
	}
	return s.device.note(e.(*Event).event.Record(s.stream))
}

// Wait implements device.Stream.
func (s *Stream) Wait(e device.Event) error {
	if s.sequence != nil {
		s.sequence.Wait(s.stream, e.(*Event).event)
		return nil
	}
	return s.device.note(s.stream.WaitEvent(e.(*Event).event))
}

// Synchronize implements device.Stream.
func (s *Stream) Synchronize() error {
	return errors.Join(s.flush(), s.device.note(s.stream.Synchronize()))
}

// Capturing implements device.Stream.
func (s *Stream) Capturing() (bool, error) {
	if err := s.flush(); err != nil {
		return false, err
	}
	on, err := s.stream.IsCapturing()
	return on, s.device.note(err)
}

// Close implements device.Stream.
func (s *Stream) Close() { s.device.note(s.stream.Destroy()) }

// Event is a CUDA event. It implements device.Event and, made by NewTimer, device.Timer.
type Event struct {
	device *Device
	event  *driver.Event
}

// Passed implements device.Event.
func (e *Event) Passed() (bool, error) {
	passed, err := e.event.Query()
	return passed, e.device.note(err)
}

// Synchronize implements device.Event.
func (e *Event) Synchronize() error { return e.device.note(e.event.Synchronize()) }

// Since implements device.Timer, for events that NewTimer made.
func (e *Event) Since(start device.Timer) (time.Duration, error) {
	took, err := e.event.Since(start.(*Event).event)
	return took, e.device.note(err)
}

// Close implements device.Event.
func (e *Event) Close() { e.device.note(e.event.Destroy()) }
