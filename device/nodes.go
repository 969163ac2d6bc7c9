package device

import "errors"

// NodeAllocator is a Device that can lay host memory on memory nodes (NUMA) of the host.
type NodeAllocator interface {
	// AllocHostOn is AllocHost of memory that lies on the given nodes, page by page in turns; where those are full, elsewhere. Nodes
	// are at least one, by the system's numbers. A node that cannot be had is an error.
	AllocHostOn(nodes []int, bytes int64, what string) (Buffer, error)
}

var errNoNodes = errors.New("device: the backend does not lay memory on nodes")

// AllocHostOn returns host memory of d on the given nodes; where there are none given, or that fails, it is d.AllocHost's, and refused
// says why it lies where the system put it.
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
