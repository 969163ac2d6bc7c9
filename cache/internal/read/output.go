package read

import (
	"sync"
)

// packedBytes is the most bytes of rows that are copied to places further apart at a time, unless a single row is longer.
const packedBytes = 4 << 20

// output is Go memory for rows of so many bytes, of which each begins stride bytes after the one before it.
type output struct {
	mem         []byte
	row, stride int
}

// outputOf returns the output of a table's rows; stride 0: back to back.
func outputOf(t *Table, mem []byte, stride int64) output {
	rowBytes := t.Tier.RowBytes()
	return output{mem, rowBytes, max(rowBytes, int(stride))}
}

// from returns the output of the rows from row i on.
func (o output) from(i int) output {
	o.mem = o.mem[i*o.stride:]
	return o
}

// put writes bytes that begin at position at of the rows, counted without what lies between them.
func (o output) put(at int, src []byte) {
	if o.stride == o.row {
		copy(o.mem[at:], src)
		return
	}
	i, in := at/o.row, at%o.row
	for ; len(src) > 0; i, in = i+1, 0 {
		src = src[copy(o.mem[i*o.stride+in:i*o.stride+o.row], src):]
	}
}

// packed is memory for rows back to back. It is kept for later batches.
var packed = sync.Pool{New: func() any { return new([]byte) }}

// takePacked returns so many bytes of memory. The caller puts it back.
func takePacked(bytes int) *[]byte {
	p := packed.Get().(*[]byte)
	if cap(*p) < bytes {
		*p = make([]byte, bytes)
	}
	*p = (*p)[:bytes]
	return p
}
