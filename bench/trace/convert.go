package trace

import (
	"context"
	"io"
	"slices"
)

// Filter says which requests of a trace are copied. The zero value copies all.
type Filter struct {
	// Gets leaves out sets and deletes. Misses leaves out requests that are not known to have missed.
	Gets, Misses bool
	// Limit is the most requests that are copied, 0 for all.
	Limit int64
}

// Copied is what Copy did.
type Copied struct{ Read, Written int64 }

// Copy reads r to its end and appends the requests that the filter lets through to w. Next accesses are kept only if all requests
// are: otherwise they would be the logical times of other requests.
func Copy(ctx context.Context, w *Writer, r Reader, f Filter) (c Copied, err error) {
	buf := make([]Request, blockRequests)
	for {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		n, err := r.Read(buf)
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.Read += int64(n)
		kept := f.apply(buf[:n])
		if f.Limit > 0 {
			kept = kept[:min(int64(len(kept)), f.Limit-c.Written)]
		}
		if err := w.Write(kept); err != nil {
			return c, err
		}
		if c.Written += int64(len(kept)); f.Limit > 0 && c.Written == f.Limit {
			return c, nil
		}
	}
}

// apply moves what is let through to the front.
func (f *Filter) apply(requests []Request) []Request {
	if *f == (Filter{}) {
		return requests
	}
	kept := slices.DeleteFunc(requests, func(r Request) bool { return (f.Gets || f.Misses) && r.Op != Get || f.Misses && r.Outcome != Miss })
	for i := range kept {
		kept[i].Next = Unknown
	}
	return kept
}
