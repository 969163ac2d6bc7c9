package numa

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/race"
)

// ErrRefused is wrapped by errors for operations that the system does not support or does not allow this process.
var ErrRefused = errors.New("numa: refused by the system")

// ErrNoMemory is wrapped by errors of New and AllocShared if there is too little memory.
var ErrNoMemory = errors.New("numa: out of memory")

// Memory is zeroed memory of Alloc or New.
type Memory struct {
	bytes  []byte
	mapped []byte // whole pages; nil if bytes is memory of the Go heap

	file      *os.File // of memory of AllocShared
	shared    bool     // other processes may have it mapped
	readOnly  bool     // a write ends the process
	collapses bool     // Populate gives it huge pages
	fresh     bool     // it is a file that Named has made
}

// Bytes returns the memory. It must not be used after Free.
func (m *Memory) Bytes() []byte { return m.bytes }

// Blocks of at least mappedMin bytes are mapped by New. Shorter ones are not worth a mapping.
const mappedMin = 256 << 10

// align is the alignment of New's memory: one 128-byte line, as on a GPU.
const align = 128

// New returns bytes of zeroed memory, aligned to 128 bytes, which Free gives back to the system at once. Memory shorter than
// 256 KiB, memory of a race detector's build (the detector watches the Go heap only) and memory on systems that cannot map any
// is the Go heap's. If there is too little memory, the error wraps ErrNoMemory.
func New(bytes int64) (*Memory, error) {
	if bytes >= mappedMin && !race.Enabled {
		m, err := Alloc(bytes, nil)
		if err == nil {
			m.bytes = m.bytes[:bytes:bytes]
			return m, nil
		}
		if !errors.Is(err, ErrRefused) {
			return nil, fmt.Errorf("%w: %w", ErrNoMemory, err)
		}
	}
	b := make([]byte, bytes+align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % align
	return &Memory{bytes: b[skip : int64(skip)+bytes : int64(skip)+bytes]}, nil
}

// Make returns a slice of n zero elements, which hold no pointers, in memory of New. Where there is too little memory, Make fails like
// the built-in make.
func Make[T any](n int64) ([]T, *Memory) {
	m, err := New(n * int64(unsafe.Sizeof(*new(T))))
	if err != nil {
		return make([]T, n), nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.bytes))), n), m
}

// Free unmaps the memory. A second Free does nothing, nor does Free of a nil Memory.
func (m *Memory) Free() error {
	if m == nil {
		return nil
	}
	mapped, file := m.mapped, m.file
	m.bytes, m.mapped, m.file = nil, nil, nil
	if mapped == nil {
		return nil
	}
	var err error
	if file != nil {
		err = file.Close()
	}
	free := unmap
	if m.shared {
		free = unmapShared
	}
	if failed := free(mapped); failed != nil {
		err = errors.Join(err, fmt.Errorf("numa: memory (%d bytes) cannot be unmapped: %w", len(mapped), failed))
	}
	return err
}

// Held is the number of bytes that lie on a node.
type Held struct {
	Node  int   `json:"node"`
	Bytes int64 `json:"bytes"`
}

// Add returns the sums of a and b by node, in ascending order of nodes.
func Add(a, b []Held) (sum []Held) {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Held) int { return x.Node - y.Node })
	for _, h := range all {
		if n := len(sum); n > 0 && sum[n-1].Node == h.Node {
			sum[n-1].Bytes += h.Bytes
		} else {
			sum = append(sum, h)
		}
	}
	return sum
}
