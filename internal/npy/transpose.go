package npy

// transposer walks the rows of an array in Fortran order in the order that C has.
type transposer struct {
	data    []byte
	size    int   // bytes of an element
	shape   []int // all axes but the last
	strides []int // bytes from one index to the next, same axes
	last    int   // bytes from one element of a row to the next
	index   []int // of the next row
	base    int   // its first element's offset in data
	ended   bool  // whether all rows are handed out
}

func newTransposer(data []byte, shape []int, size int) *transposer {
	rank := len(shape)
	t := &transposer{
		data: data, size: size, shape: shape[:rank-1],
		strides: make([]int, rank-1), index: make([]int, rank-1), last: size,
	}
	for k, n := range t.shape {
		t.strides[k] = t.last
		t.last *= n
	}
	return t
}

// next writes the next row to dst, whose length is a row's.
func (t *transposer) next(dst []byte) {
	for src := t.base; len(dst) > 0; src += t.last {
		dst = dst[copy(dst[:t.size], t.data[src:]):]
	}
	// The last of the remaining axes varies fastest.
	for k := len(t.shape) - 1; k >= 0; k-- {
		t.index[k]++
		t.base += t.strides[k]
		if t.index[k] < t.shape[k] {
			return
		}
		t.base -= t.strides[k] * t.shape[k]
		t.index[k] = 0
	}
	t.ended = true
}
