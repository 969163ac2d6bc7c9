package demand

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// Trace is a sequence of requests in memory: 4 bytes a request, 8 more where the rows' sizes change, 1 more where not all
// requests are gets, and 8 bytes a row.
type Trace struct {
	// IDs are the rows' numbers, below Rows.
	IDs  []uint32
	Rows int
	// Ops are the operations; nil: all are gets.
	Ops []trace.Op
	// Sizes are those of the rows, nil if the trace has none, each as the row's first request has it.
	Sizes []int64
	// changed has every request's size, nil if rows keep theirs.
	changed []int64
	next    []uint32 // what addNext found
}

// never is the next access of a row that has none.
const never = math.MaxUint32

// Limits of a trace: its requests and the size of one. Sums stay within 64 bits.
const (
	MaxRequests = never - 1
	MaxSize     = 1 << 31
)

// Load reads a trace to its end and numbers its IDs. Errors of the reader are returned as they are, others name the trace.
func Load(name string, r trace.Reader) (*Trace, error) {
	t := &Trace{}
	ids := newInterner()
	buf := make([]trace.Request, 1024)
	for {
		n, err := r.Read(buf)
		if len(t.IDs)+n > MaxRequests {
			return nil, fmt.Errorf("sim: %s: requests must be at most %d", name, int64(MaxRequests))
		}
		for part := range slices.Chunk(buf[:n], internBatch) {
			if err := t.add(part, &ids); err != nil {
				return nil, fmt.Errorf("sim: %s: %w", name, err)
			}
		}
		if errors.Is(err, io.EOF) {
			t.Rows = int(ids.count)
			return t, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// add appends a batch of requests.
func (t *Trace) add(batch []trace.Request, ids *interner) error {
	var rows [internBatch]uint32
	ids.numbers(batch, &rows)
	first := len(t.IDs)
	if first+len(batch) > cap(t.IDs) {
		t.IDs = slices.Grow(t.IDs, max(1<<16, first)) // append would grow it by a quarter only, and copy three times as much
	}
	t.IDs = append(t.IDs, rows[:len(batch)]...)
	for i := range batch {
		q := &batch[i]
		if q.Size != 0 || t.Sizes != nil {
			size := q.Size
			if q.Op == trace.Delete && int(rows[i]) < len(t.Sizes) {
				size = t.Sizes[rows[i]] // a delete's says nothing
			}
			if err := t.addSize(first+i, rows[i], size); err != nil {
				return err
			}
		}
		if q.Op != trace.Get && t.Ops == nil {
			t.Ops = make([]trace.Op, first+i)
		}
		if t.Ops != nil {
			t.Ops = append(t.Ops, q.Op)
		}
	}
	return nil
}

// addSize notes the size of request i.
func (t *Trace) addSize(i int, row uint32, size int64) error {
	if size < 0 || size > MaxSize {
		return fmt.Errorf("request %d: size (%d) must be 0 to %d", i, size, int64(MaxSize))
	}
	if t.Sizes == nil { // all requests before had none
		t.Sizes = make([]int64, slices.Max(t.IDs[:i+1])+1)
		if known := slices.Contains(t.IDs[:i], row); !known {
			t.Sizes = t.Sizes[:row]
		}
	}
	if int(row) == len(t.Sizes) {
		t.Sizes = append(t.Sizes, size)
	}
	if t.changed == nil && size != t.Sizes[row] {
		t.changed = make([]int64, i, cap(t.IDs))
		for j, id := range t.IDs[:i] {
			t.changed[j] = t.Sizes[id]
		}
	}
	if t.changed != nil {
		t.changed = append(t.changed, size)
	}
	return nil
}

// Unit returns the trace with every row counting 1.
func (t *Trace) Unit() *Trace {
	u := *t
	u.Sizes, u.changed = nil, nil
	return &u
}

// WorkingSet is the sum of the rows' sizes.
func (t *Trace) WorkingSet() int64 {
	if t.Sizes == nil {
		return int64(t.Rows)
	}
	sum := int64(0)
	for _, n := range t.Sizes {
		sum += n
	}
	return sum
}

// PrepareFuture finds when each row is requested next, for the policies that look ahead, whatever the file said about it.
// It takes 4 bytes a request.
func (t *Trace) PrepareFuture() {
	if t.next != nil {
		return
	}
	t.next = make([]uint32, len(t.IDs))
	at := make([]uint32, t.Rows)
	for r := range at {
		at[r] = never
	}
	for i := len(t.IDs) - 1; i >= 0; i-- {
		row := t.IDs[i]
		t.next[i] = at[row]
		at[row] = uint32(i)
		if t.Ops != nil && t.Ops[i] != trace.Get {
			at[row] = never // what is overwritten or deleted next is not worth holding
		}
	}
}

// Size returns what request i asks for. REQUIRES: the trace has Sizes.
func (t *Trace) Size(i int) int64 {
	if t.changed != nil {
		return t.changed[i]
	}
	return t.Sizes[t.IDs[i]]
}
