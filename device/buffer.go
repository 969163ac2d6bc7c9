package device

// Buffer is a span of memory that kernels can address.
type Buffer struct {
	host []byte
	addr uint64
	size int64
}

// HostBuffer returns the buffer of memory that the host sees as b. The memory must outlive the buffer's use.
func HostBuffer(b []byte) Buffer { return Buffer{host: b, size: int64(len(b))} }

// DeviceBuffer returns the buffer of memory that lies at addr for the device, and nowhere for the host.
func DeviceBuffer(addr uint64, size int64) Buffer { return Buffer{addr: addr, size: size} }

// MappedBuffer returns the buffer of memory that the host sees as b and the device at addr.
func MappedBuffer(b []byte, addr uint64) Buffer {
	return Buffer{host: b, addr: addr, size: int64(len(b))}
}

// Size returns the length in bytes.
func (b Buffer) Size() int64 { return b.size }

// Bytes returns the memory as the host sees it, or nil where the host cannot address it.
func (b Buffer) Bytes() []byte { return b.host }

// Addr returns the memory's address for the device's kernels, or 0 where they cannot address it.
func (b Buffer) Addr() uint64 { return b.addr }

// Slice returns the part of the buffer from byte from up to byte to.
func (b Buffer) Slice(from, to int64) Buffer {
	if b.host != nil {
		b.host = b.host[from:to:to]
	}
	if b.addr != 0 {
		b.addr += uint64(from)
	}
	b.size = to - from
	return b
}
