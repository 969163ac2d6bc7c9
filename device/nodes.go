package device

import "errors"

// NodeAllocator is a Device that can place host memory on given memory nodes (NUMA) of the host.
type NodeAllocator interface {
	// AllocHostOn is AllocHost for memory interleaved over the given nodes, page by page. nodes holds at least one of the
	// system's node numbers. Pages for which the nodes have no room go to other nodes. A node that does not exist or may not
	// be used is an error.
	AllocHostOn(nodes []int, bytes int64, what string) (Buffer, error)
}

// Discarder is a Device that can give back a part of host memory before the whole is freed.
type Discarder interface {
	// Discard says that bytes [from, to) of a buffer of AllocHost are not read any more. Pages that lie in them are given back, where
	// the memory is of pages of its own.
	Discard(b Buffer, from, to int64)
}

var errNoNodes = errors.New("device: the backend cannot place memory on nodes")

// AllocHostOn returns host memory of d on the given nodes. If that fails, or no nodes are given, it returns memory of
// d.AllocHost, and refused says why the nodes were not used (nil if none were given).
func AllocHostOn(d Device, nodes []int, bytes int64, what string) (b Buffer, refused, err error) {
	if len(nodes) > 0 {
		refused = errNoNodes
		if on, ok := d.(NodeAllocator); ok {
			if b, refused = on.AllocHostOn(nodes, bytes, what); refused == nil {
				return b, nil, nil
			}
		}
	}
	b, err = d.AllocHost(bytes, what)
	return b, refused, err
}

// HostAdopter is a Device that can use host memory of the caller's.
type HostAdopter interface {
	// AdoptHost returns host memory outside the Go heap, which begins at a page, as memory that every device of the backend can address.
	// With GPUs it is page-locked until Free, if it is not page-locked already. Free leaves the memory to the caller.
	AdoptHost(mem []byte, what string) (Buffer, error)
	// Reaches returns an error if the device cannot address memory that another device of the backend has adopted.
	Reaches(b Buffer) error
}
