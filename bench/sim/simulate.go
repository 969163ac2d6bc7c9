package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/sim/demand"
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/memlimit"
)

// Config says what to simulate on a trace. Fields go by the names of their flags.
type Config struct {
	// Trace is a file or trace.StandardInput, Format one of trace.Formats, "" what the file looks like, and TraceParams are trace.Options.Params.
	Trace, Format, TraceParams string
	// Policies are of PolicyNames.
	Policies []string
	// Sizes are cache sizes: shares of the working set ("1%"), or bytes ("64MiB"), with UnitSize rows.
	Sizes []string
	// UnitSize counts every row as 1.
	UnitSize bool
	// RefreshRequests is how many requests there are between two refreshes of admission policies. Default: a 250th of the trace,
	// at least 256.
	RefreshRequests int
	// Workers is how many simulations run at once. Default GOMAXPROCS.
	Workers int
	Seed    uint64
	// Force goes on where the memory is estimated not to suffice.
	Force bool
}

// Result is what one policy missed at one size.
type Result struct {
	Policy string `json:"policy"`
	// CacheObjects and CacheBytes are the cache's size: equal where rows count 1, else the first is how many rows of mean
	// size CacheBytes holds.
	CacheObjects      int64   `json:"cache_objects"`
	CacheBytes        int64   `json:"cache_bytes"`
	Requests          int64   `json:"requests"`
	Misses            int64   `json:"misses"`
	MissRatio         float64 `json:"miss_ratio"`
	ByteMissRatio     float64 `json:"byte_miss_ratio"`
	RequestsPerSecond float64 `json:"requests_per_second"`
}

// Source is the trace that something was computed from.
type Source struct {
	Trace string `json:"trace"`
	// Requests are gets only.
	Requests int64 `json:"requests"`
	IDs      int64 `json:"ids"`
	// WorkingSet is the size of all rows, in bytes or rows.
	WorkingSet int64 `json:"working_set"`
	UnitSize   bool  `json:"unit_size"`
}

// Simulation has the results, policy by policy in the order asked for.
type Simulation struct {
	Source
	Results []Result
}

// Progress hears of the stages of a simulation. Step may be called by several goroutines.
type Progress interface {
	Stage(name string, steps int)
	Step()
}

// admissionPrefix tells admission policies from those of package demand that have the same name.
const admissionPrefix = "admission/"

// PolicyNames returns the names that Config.Policies takes, sorted.
func PolicyNames() []string {
	names := demand.Names()
	for _, name := range admission.Names() {
		if spec, err := admission.Lookup(name); err == nil && spec.Learns == admission.FromAccesses {
			if _, err := demand.Lookup(name); err == nil {
				name = admissionPrefix + name
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// job is one simulation.
type job struct {
	name      string
	capacity  int64
	demand    *demand.Policy
	admission *admission.Spec
}

func (c *Config) policies() (jobs []job, err error) {
	var f faults.List
	known := PolicyNames()
	for _, name := range c.Policies {
		base, parameters, _ := strings.Cut(name, ":")
		if p, err := demand.Lookup(base); !slices.Contains(known, name) && (err != nil || p.With == nil || parameters == "") {
			f.Addf("unknown policy (%q) must be one of %s", name, strings.Join(known, ", "))
			continue
		}
		if p, err := demand.Lookup(name); err == nil || parameters != "" {
			f.Add(err)
			jobs = append(jobs, job{name: name, demand: &p})
			continue
		}
		spec, err := admission.Lookup(strings.TrimPrefix(name, admissionPrefix))
		f.Add(err)
		jobs = append(jobs, job{name: name, admission: &spec})
	}
	return jobs, f.Err()
}

// Validate reports every field out of range, before anything is read.
func (c *Config) Validate() error {
	var f faults.List
	_, err := c.policies()
	f.Add(err)
	f.If(len(c.Policies) == 0, "--policy must name at least one policy")
	c.validateSource(&f)
	f.If(len(c.Sizes) == 0, "--sizes must name at least one size")
	f.If(c.RefreshRequests < 0, "--refresh-requests (%d) must not be negative", c.RefreshRequests)
	f.If(c.Workers < 0, "--workers (%d) must not be negative", c.Workers)
	return f.Err()
}

func (c *Config) validateSource(f *faults.List) {
	f.If(c.Trace == "", "--trace must name a file")
	known := slices.ContainsFunc(trace.Formats(), func(name string) bool { return strings.EqualFold(name, c.Format) })
	f.If(c.Format != "" && !known, "--format (%q) must be one of %s", c.Format, strings.Join(trace.Formats(), ", "))
	for _, size := range c.Sizes {
		_, err := c.size(size, 1<<40)
		f.Add(err)
	}
}

// size returns the cache size that the text of --sizes means for a working set.
func (c *Config) size(text string, workingSet int64) (int64, error) {
	text = strings.TrimSpace(text)
	if share, ok := strings.CutSuffix(text, "%"); ok {
		if p, err := strconv.ParseFloat(strings.TrimSpace(share), 64); err == nil && p > 0 && !math.IsInf(p, 0) {
			return max(1, int64(min(p*float64(workingSet)/100, math.MaxInt64/4))), nil
		}
	} else if c.UnitSize {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n <= math.MaxInt64/4 {
			return n, nil
		}
	} else if n, err := humanize.ParseBytes(text); err == nil && n > 0 && n <= math.MaxInt64/4 {
		return int64(n), nil
	}
	if c.UnitSize {
		return 0, fmt.Errorf("--sizes (%q) must be a positive percentage of the working set or, with --unit-size, a number of objects", text)
	}
	return 0, fmt.Errorf("--sizes (%q) must be a positive percentage of the working set or a size such as 64MiB", text)
}

// Estimates of memory: loadBytes for each request while a trace is read and its IDs are numbered, rowBytes for each row of a simulation.
const (
	loadBytes = 16
	rowBytes  = 48
)

// load reads the trace.
func (c *Config) load() (*demand.Trace, Source, error) {
	r, err := trace.Open(c.Trace, trace.Options{Format: c.Format, Params: c.TraceParams})
	if err != nil {
		return nil, Source{}, err
	}
	defer r.Close()
	if !c.Force {
		r = trace.Limited(r, "--trace", c.Trace, loadBytes)
	}
	t, err := demand.Load(c.Trace, r)
	if err != nil {
		return nil, Source{}, err
	}
	s := Source{Trace: c.Trace, Requests: int64(len(t.IDs)), IDs: int64(t.Rows), UnitSize: c.UnitSize}
	if t.Ops != nil {
		s.Requests = 0
		for _, op := range t.Ops {
			if op == trace.Get {
				s.Requests++
			}
		}
	}
	if s.Requests == 0 {
		return nil, s, fmt.Errorf("sim: %s: gets (0) must be at least 1", c.Trace)
	}
	if c.UnitSize {
		t = t.Unit()
	} else if t.Sizes == nil {
		return nil, s, fmt.Errorf("sim: %s: has no sizes of rows: give --unit-size, and each counts 1", c.Trace)
	}
	s.WorkingSet = t.WorkingSet()
	return t, s, nil
}

// Simulate reads the trace once and runs every policy at every size, several at a time.
func Simulate(ctx context.Context, c Config, bar Progress) (*Simulation, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	policies, _ := c.policies()
	bar.Stage("reading the trace", 0)
	t, source, err := c.load()
	if err != nil {
		return nil, err
	}
	var jobs []job
	for _, p := range policies {
		if p.demand != nil && p.demand.UnitOnly && !c.UnitSize {
			return nil, fmt.Errorf("--policy %s counts rows whatever their sizes: it needs --unit-size", p.name)
		}
		if p.demand != nil && p.demand.Future {
			t.PrepareFuture()
		}
		for _, text := range c.Sizes {
			if p.capacity, err = c.size(text, source.WorkingSet); err != nil {
				return nil, err
			}
			jobs = append(jobs, p)
		}
	}
	var stream *Stream
	if slices.ContainsFunc(jobs, func(j job) bool { return j.admission != nil }) {
		if stream, err = c.stream(t); err != nil {
			return nil, err
		}
	}

	workers := min(cmp.Or(c.Workers, runtime.GOMAXPROCS(0)), len(jobs))
	if !c.Force {
		if err := memlimit.Check(memlimit.Need{Setting: "--workers", Value: workers, Bytes: float64(workers) * rowBytes * float64(t.Rows)}); err != nil {
			return nil, err
		}
	}
	bar.Stage("simulating", len(jobs))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &Simulation{Source: source, Results: make([]Result, len(jobs))}
	free := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for i := range jobs {
		free <- struct{}{}
		wg.Go(func() {
			if err := c.run(ctx, jobs[i], t, stream, &out.Results[i]); err != nil {
				cancel(err)
			}
			bar.Step()
			<-free
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// run fills in one result.
func (c *Config) run(ctx context.Context, j job, t *demand.Trace, stream *Stream, r *Result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	*r = Result{Policy: j.name, CacheObjects: j.capacity, CacheBytes: j.capacity}
	if !c.UnitSize {
		r.CacheObjects = int64(float64(j.capacity) * float64(t.Rows) / float64(max(1, t.WorkingSet())))
	}
	var o *demand.Outcome
	if j.demand != nil {
		var err error
		if o, err = t.Run(ctx, *j.demand, demand.Config{Capacity: j.capacity, Seed: c.Seed}, 0); err != nil {
			return err
		}
	} else {
		p, err := j.admission.New(admission.Inputs{})
		if err != nil {
			return err
		}
		s := *stream
		s.Capacity = j.capacity
		start := time.Now()
		out, err := Run(&s, p, Options{Every: 1, Static: !j.admission.Online, FillAfter: max(1, s.Batches.Batches()/4), Seed: c.Seed})
		if err != nil {
			return err
		}
		o = &demand.Outcome{Requests: out.Lookups, Misses: out.Lookups - out.Hits, Bytes: out.LookupBytes, MissBytes: out.LookupBytes - out.HitBytes, Elapsed: time.Since(start)}
	}
	r.Requests, r.Misses = o.Requests, o.Misses
	r.MissRatio, r.ByteMissRatio = ratio(o.Misses, o.Requests), ratio(o.MissBytes, o.Bytes)
	r.RequestsPerSecond = float64(o.Requests) / max(1e-9, o.Elapsed.Seconds())
	return nil
}

// stream returns the trace's gets as batches, one between any two refreshes. REQUIRES: there is one.
func (c *Config) stream(t *demand.Trace) (*Stream, error) {
	ids := t.IDs
	if t.Ops != nil {
		ids = nil
		for i, op := range t.Ops {
			if op == trace.Get {
				ids = append(ids, t.IDs[i])
			}
		}
	}
	gets, err := workload.NewReplay(ids, cmp.Or(c.RefreshRequests, max(256, len(ids)/250)))
	if err != nil {
		return nil, err
	}
	s := &Stream{Name: c.Trace, Batches: gets, Slot: make([]uint32, t.Rows)}
	for r := range s.Slot {
		s.Slot[r] = 1
		if t.Sizes != nil {
			s.Slot[r] = uint32(max(1, t.Sizes[r]))
		}
	}
	s.Stored = s.Slot
	return s, nil
}
