package device

import "fmt"

// Alloc is d.Alloc, or, if shared is set, AllocShared of a Sharer: for memory that batches read and that other processes may map.
func Alloc(d Device, shared bool, bytes int64, what string) (Buffer, error) {
	if !shared {
		return d.Alloc(bytes, what)
	}
	s, err := SharerOf(d)
	if err != nil {
		return Buffer{}, err
	}
	return s.AllocShared(bytes, what)
}

// AllocHost is AllocHostOn, or, if shared is set, AllocSharedHost of a Sharer. That takes memory of any node where the given nodes are refused.
func AllocHost(d Device, shared bool, nodes []int, bytes int64, what string) (b Buffer, refused, err error) {
	if !shared {
		return AllocHostOn(d, nodes, bytes, what)
	}
	s, err := SharerOf(d)
	if err != nil {
		return Buffer{}, nil, err
	}
	if len(nodes) > 0 {
		if b, refused = s.AllocSharedHost(nodes, bytes, what); refused == nil {
			return b, nil, nil
		}
	}
	b, err = s.AllocSharedHost(nil, bytes, what)
	return b, refused, err
}

// AllocCopy returns memory of Alloc that holds a copy of b. what says in errors what the memory is for.
func AllocCopy(d Device, shared bool, b []byte, what string) (Buffer, error) {
	to, err := Alloc(d, shared, int64(len(b)), what)
	if err != nil {
		return Buffer{}, err
	}
	if err := Upload(d, to, b); err != nil {
		d.Free(to)
		return Buffer{}, err
	}
	return to, nil
}

// SharerOf returns a device that can share memory as a Sharer. The error for others wraps ErrNotShared.
func SharerOf(d Device) (Sharer, error) {
	if s, ok := d.(Sharer); ok {
		return s, nil
	}
	info := d.Info()
	return nil, fmt.Errorf("%w: device %d (%s, %s) does not support it", ErrNotShared, info.Index, info.Kind, info.Name)
}
