package host

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// AllocShared implements device.Sharer.
func (d *Device) AllocShared(bytes int64, what string) (device.Buffer, error) {
	return d.AllocSharedHost(nil, bytes, what)
}

// AllocSharedHost implements device.Sharer.
func (d *Device) AllocSharedHost(nodes []int, bytes int64, what string) (device.Buffer, error) {
	return d.alloc("allocation for "+what, bytes, 0, what, func(bytes int64) (*numa.Memory, error) {
		m, err := numa.AllocShared("tensorcache "+what, max(bytes, 1), nodes)
		if errors.Is(err, numa.ErrRefused) && len(nodes) == 0 {
			err = fmt.Errorf("%w: %w", device.ErrNotShared, err)
		}
		if err == nil {
			populate(m)
		}
		return m, err
	})
}

// populate allocates all of the memory, because it gets huge pages so, unless it has room for none or would leave less than an eighth of the available
// memory.
func populate(m *numa.Memory) {
	bytes := int64(len(m.Bytes()))
	if bytes < 2<<20 {
		return
	}
	if free, err := numa.Available(); err == nil && bytes <= free-free/8 {
		m.Populate()
	}
}

// Export implements device.Sharer.
func (d *Device) Export(b device.Buffer) (*os.File, error) {
	m, ok := d.memory.Load(unsafe.SliceData(b.Bytes()))
	if !ok || int64(len(m.(*block).Bytes())) != max(b.Size(), 1) {
		return nil, fmt.Errorf("host: buffer (%d bytes) exported must be one of AllocShared of this device", b.Size())
	}
	f, err := m.(*block).File()
	if err != nil {
		return nil, fmt.Errorf("host: buffer (%d bytes) exported: %w", b.Size(), err)
	}
	return f, nil
}

// Import implements device.Sharer.
func (d *Device) Import(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	return d.alloc("import of "+what, bytes, 0, what, func(bytes int64) (*numa.Memory, error) {
		m, err := numa.MapShared(f, max(bytes, 1), writable)
		if err == nil && m.Fresh() {
			populate(m)
		}
		return m, err
	})
}

// ImportHost implements device.Sharer.
func (d *Device) ImportHost(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	return d.Import(f, bytes, writable, what)
}
