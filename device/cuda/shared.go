//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"os"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// AllocShared implements device.Sharer, by the driver's virtual memory management. Devices opened with this one that can read its memory
// can read this memory, too.
func (d *Device) AllocShared(bytes int64, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	if err := d.shares(); err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: shared allocation for %s (%d bytes): %w", what, bytes, err)
	}
	var readers []driver.Device
	for _, other := range d.together {
		if other != d && other.CanRead(d) {
			readers = append(readers, other.gpu)
		}
	}
	m, err := d.ctx.AllocShared(max(bytes, 1), readers)
	if err != nil {
		return device.Buffer{}, d.allocError(err, bytes, what)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.zeroLocked(m.DevicePtr(), m.Bytes()); err != nil {
		return device.Buffer{}, d.allocError(errors.Join(err, m.Free()), bytes, what)
	}
	d.buffers[uint64(m.DevicePtr())] = m
	return device.DeviceBuffer(uint64(m.DevicePtr()), bytes), nil
}

func (d *Device) shares() error {
	if err := d.gpu.Shares(); err != nil {
		return fmt.Errorf("%w: %w", device.ErrNotShared, err)
	}
	return nil
}

// AllocSharedHost implements device.Sharer. The memory is page-locked.
func (d *Device) AllocSharedHost(nodes []int, bytes int64, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	if bytes >= mappedHost && !fitsHost(bytes) {
		return device.Buffer{}, fmt.Errorf("cuda: shared allocation for %s (%d bytes) must leave an eighth of the host's free memory: %w", what, bytes, device.ErrOutOfMemory)
	}
	memory, err := numa.AllocShared("tensorcache "+what, max(bytes, 1), nodes)
	if err != nil {
		if errors.Is(err, numa.ErrRefused) && len(nodes) == 0 {
			err = fmt.Errorf("%w: %w", device.ErrNotShared, err)
		}
		if errors.Is(err, numa.ErrNoMemory) {
			err = fmt.Errorf("%w: %w", device.ErrOutOfMemory, err)
		}
		return device.Buffer{}, fmt.Errorf("cuda: shared allocation for %s: %w", what, err)
	}
	return d.lock(memory, false, bytes, what)
}

// Export implements device.Sharer.
func (d *Device) Export(b device.Buffer) (*os.File, error) {
	d.mu.Lock()
	m := d.buffers[b.Addr()]
	d.mu.Unlock()
	size := max(b.Size(), 1)
	switch m := m.(type) {
	case *driver.SharedMem:
		if m.Bytes() != size || m.Imported() {
			break
		}
		fd, err := m.Export()
		if err != nil {
			return nil, d.note(err)
		}
		return os.NewFile(fd, "memory of a GPU"), nil
	case *onNodes:
		if int64(len(m.memory.Bytes())) != size {
			break
		}
		f, err := m.memory.File()
		if err != nil {
			return nil, fmt.Errorf("cuda: buffer (%d bytes) exported: %w", b.Size(), err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("cuda: buffer (%d bytes) exported must be one of AllocShared or AllocSharedHost of device %d", b.Size(), d.ordinal)
}

// Import implements device.Sharer.
func (d *Device) Import(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	if f == nil {
		return device.Buffer{}, fmt.Errorf("cuda: import of %s: descriptor must not be nil", what)
	}
	if err := d.shares(); err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: import of %s: %w", what, err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: import of %s: %w", what, err)
	}
	var m *driver.SharedMem
	failed := raw.Control(func(fd uintptr) { m, err = d.ctx.ImportShared(fd, max(bytes, 1), writable, d.readersOf) })
	if err := errors.Join(failed, err); err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: import of %s (%d bytes), which must be memory that a GPU has exported: %w", what, bytes, d.note(err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[uint64(m.DevicePtr())] = m
	return device.DeviceBuffer(uint64(m.DevicePtr()), bytes), nil
}

// readersOf returns which of the devices that were opened with d can access another GPU's memory. d must be one of them.
func (d *Device) readersOf(on driver.Device) (readers []driver.Device, err error) {
	for _, reader := range d.together {
		can := reader.gpu.Ordinal() == on.Ordinal()
		if !can {
			if can, err = reader.gpu.CanAccessPeer(on); err != nil {
				return nil, err
			}
		}
		switch {
		case can:
			readers = append(readers, reader.gpu)
		case reader == d:
			return nil, fmt.Errorf("%w: device %d cannot read device %d's memory", ErrUnsupported, d.ordinal, on.Ordinal())
		}
	}
	return readers, nil
}

// ImportHost implements device.Sharer. The memory is page-locked. If the GPU cannot page-lock memory that is mapped to be read, it is mapped to
// be written, too.
func (d *Device) ImportHost(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	readOnly := !writable && d.gpu.ReadOnlyHost()
	memory, err := numa.MapShared(f, max(bytes, 1), !readOnly)
	if err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: import of %s: %w", what, err)
	}
	return d.lock(memory, readOnly, bytes, what)
}
