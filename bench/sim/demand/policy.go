package demand

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// Policy is an algorithm.
type Policy struct {
	Name string
	// Future says that it needs to know the requests to come, Prefilled that its cache does not start empty.
	Future, Prefilled bool
	// UnitOnly says that it counts rows whatever their sizes.
	UnitOnly bool
	// New makes a cache.
	New func(Config) cache
	// With returns New with parameters that follow the name behind a colon, nil if the policy has none.
	With func(parameters string) (func(Config) cache, error)
}

// Config is what a cache is made for.
type Config struct {
	// Capacity is the cache's size, at least 1.
	Capacity int64
	// Seed is for the policies that draw at random.
	Seed uint64

	rows int
	sizes
	*future
	trace *Trace
}

// cache is one run of a policy. The size of a row that is held does not change.
type cache interface {
	// access returns whether the row is held. If not, it is admitted, if the policy sees fit.
	access(row uint32) bool
	// remove withdraws the row, whether it is held or not.
	remove(row uint32)
}

// base is what most caches have.
type base struct {
	rows
	capacity int64
}

func newBase(c Config) base {
	return base{rows{make([]place, c.rows), c.sizes}, c.Capacity}
}

var policies = map[string]Policy{}

// register adds a policy, from a package variable of the policy's file.
func register(p Policy) struct{} {
	if _, ok := policies[p.Name]; ok {
		panic("sim: policy " + p.Name + " is registered twice")
	}
	policies[p.Name] = p
	return struct{}{}
}

// Names returns the names of all policies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(policies)) }

// Lookup returns the named policy, or an error that lists the known names. Parameters may follow the name behind a colon.
func Lookup(name string) (p Policy, err error) {
	base, parameters, given := strings.Cut(name, ":")
	p, ok := policies[base]
	if given && p.With != nil {
		p.New, err = p.With(parameters)
		return p, err
	}
	if !ok || given {
		return Policy{}, fmt.Errorf("sim: unknown policy (%q) must be one of %s", name, strings.Join(Names(), ", "))
	}
	return p, nil
}

// Outcome counts the gets of a run and what they asked for; without sizes, bytes are requests.
type Outcome struct {
	Requests, Misses, Bytes, MissBytes int64
	Elapsed                            time.Duration
}

// pause is the requests between looks at the context.
const pause = 1 << 20

// Run simulates one cache from its start, and counts the requests from the given one on. A set is an access that is not
// counted; a delete withdraws the row. A row that is asked for with another size than before is another version of it: what the
// cache holds is withdrawn first. PrepareFuture must have been called for policies with Future.
func (t *Trace) Run(ctx context.Context, p Policy, c Config, from int) (*Outcome, error) {
	if c.Capacity < 1 {
		return nil, fmt.Errorf("sim: cache size (%d) must be at least 1", c.Capacity)
	}
	if p.Future && t.next == nil {
		return nil, fmt.Errorf("sim: policy %s needs the trace's future", p.Name)
	}
	if p.UnitOnly && t.Sizes != nil {
		return nil, fmt.Errorf("sim: policy %s counts rows whatever their sizes: use unit sizes", p.Name)
	}
	c.rows, c.size, c.trace, c.future = t.Rows, t.Sizes, t, &future{next: t.next}
	if t.changed != nil {
		c.size = slices.Clone(t.Sizes)
	}
	start := time.Now()
	r := run{Trace: t, Config: c, cache: p.New(c), future: c.future}
	out := &Outcome{}
	for at := 0; at < len(t.IDs); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end := min(at+pause, len(t.IDs))
		if at < from {
			end = min(end, from)
			r.part(at, end, &Outcome{})
		} else {
			r.part(at, end, out)
		}
		at = end
	}
	out.Elapsed = time.Since(start)
	return out, nil
}

// run is a simulation under way.
type run struct {
	*Trace
	Config
	cache  cache
	future *future
}

// part runs requests from to end.
func (r *run) part(from, end int, out *Outcome) {
	t := r.Trace
	for i := from; i < end; i++ {
		r.future.now = i
		id, op, size := t.IDs[i], trace.Get, int64(1)
		if t.Ops != nil {
			op = t.Ops[i]
		}
		if op == trace.Delete {
			r.cache.remove(id)
			continue
		}
		if t.Sizes != nil {
			if size = t.Size(i); size != r.Config.size[id] {
				r.cache.remove(id)
				r.Config.size[id] = size
			}
		}
		hit := r.cache.access(id)
		if op != trace.Get {
			continue
		}
		out.Requests++
		out.Bytes += size
		if !hit {
			out.Misses++
			out.MissBytes += size
		}
	}
}
