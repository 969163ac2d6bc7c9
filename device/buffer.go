package device

// Buffer refers to a span of memory that kernels can address. It owns nothing.
type Buffer struct {
	host []byte
	addr uint64
	size int64
}

// HostBuffer returns a buffer for Go memory. The caller keeps b alive while the buffer is in use.
func HostBuffer(b []byte) Buffer { return Buffer{host: b, size: int64(len(b))} }

// DeviceBuffer returns a buffer for size bytes at addr in the device's address space, which the host cannot address.
func DeviceBuffer(addr uint64, size int64) Buffer { return Buffer{addr: addr, size: size} }

// MappedBuffer returns a buffer for page-locked host memory: b for the host, addr in the device's address space.
func MappedBuffer(b []byte, addr uint64) Buffer {
	return Buffer{host: b, addr: addr, size: int64(len(b))}
}

// Size returns the length in bytes.
func (b Buffer) Size() int64 { return b.size }

// Bytes returns the memory, or nil if the host cannot address it.
func (b Buffer) Bytes() []byte { return b.host }

// Addr returns the memory's address in the device's address space, or 0 if it has none.
func (b Buffer) Addr() uint64 { return b.addr }

// Slice returns the bytes [from, to) of the buffer.
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
