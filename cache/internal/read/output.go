package read

import (
	"sync"
)

// contiguousBytes is the most bytes of rows that are gathered back to back before they are copied apart, unless one row
// is longer.
const contiguousBytes = 4 << 20

// output is Go memory for rows of row bytes each. Each row begins stride bytes behind the one before.
type output struct {
	mem         []byte
	row, stride int
}

// outputOf returns the output for a table's rows. stride 0 means back to back.
func outputOf(t *Table, mem []byte, stride int64) output {
	rowBytes := t.Tier.RowBytes()
	return output{mem, rowBytes, max(rowBytes, int(stride))}
}

// from returns the output from row i on.
func (o output) from(i int) output {
	o.mem = o.mem[i*o.stride:]
	return o
}

// put copies bytes of the rows to the output. at is the offset of src among the rows' bytes, without the gaps between
// rows.
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

// contiguous holds memory for rows back to back, for reuse by later batches.
var contiguous = sync.Pool{New: func() any { return new([]byte) }}

// takeContiguous returns memory of the given bytes. The caller returns it to contiguous.
func takeContiguous(bytes int) *[]byte {
	p := contiguous.Get().(*[]byte)
	if cap(*p) < bytes {
		*p = make([]byte, bytes)
	}
	*p = (*p)[:bytes]
	return p
}
