package sparse

import "unsafe"

// element is the unsigned integer with an element's bits.
type element interface {
	uint8 | uint16 | uint32 | uint64
}

func sizeOf[T element]() int {
	var x T
	return int(unsafe.Sizeof(x))
}

// load returns element i of the bytes, which need not be aligned, and store sets it. Both check bounds.
func load[T element](b []byte, i int) T {
	size := sizeOf[T]()
	return *(*T)(unsafe.Pointer(unsafe.SliceData(b[i*size : (i+1)*size])))
}

func store[T element](b []byte, i int, x T) {
	size := sizeOf[T]()
	*(*T)(unsafe.Pointer(unsafe.SliceData(b[i*size : (i+1)*size]))) = x
}
