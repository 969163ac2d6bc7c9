package demand

import (
	"errors"
	"fmt"
	"io"
	"math"

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

// MaxRequests is how many requests a trace may have.
const MaxRequests = never

// Load reads a trace to its end and numbers its IDs.
func Load(r trace.Reader) (*Trace, error) {
	t := &Trace{}
	ids := newInterner()
	buf := make([]trace.Request, 4096)
	sized := false
	for {
		n, err := r.Read(buf)
		if len(t.IDs)+n > MaxRequests {
			return nil, fmt.Errorf("sim: trace must have at most %d requests", int64(MaxRequests))
		}
		for i := range buf[:n] {
			q := &buf[i]
			if q.Size < 0 {
				return nil, fmt.Errorf("sim: request %d: size (%d) must not be negative", len(t.IDs), q.Size)
			}
			row := ids.number(q.ID)
			if int(row) == len(t.Sizes) {
				t.Sizes = append(t.Sizes, q.Size)
			}
			sized = sized || q.Size != 0
			if t.changed == nil && q.Size != t.Sizes[row] {
				for _, id := range t.IDs {
					t.changed = append(t.changed, t.Sizes[id])
				}
			}
			if t.changed != nil {
				t.changed = append(t.changed, q.Size)
			}
			if t.Ops == nil && q.Op != trace.Get {
				t.Ops = make([]trace.Op, len(t.IDs), cap(t.IDs))
			}
			if t.Ops != nil {
				t.Ops = append(t.Ops, q.Op)
			}
			t.IDs = append(t.IDs, row)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	t.Rows = int(ids.count)
	if !sized {
		t.Sizes = nil
	}
	return t, nil
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

// size returns what request i asks for. REQUIRES: the trace has sizes.
func (t *Trace) size(i int) int64 {
	if t.changed != nil {
		return t.changed[i]
	}
	return t.Sizes[t.IDs[i]]
}
