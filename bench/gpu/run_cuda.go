//go:build cuda && linux

package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/dtype"
	"github.com/tensorcache/tensorcache/slab/placement"
	"github.com/tensorcache/tensorcache/transfer"
)

// Run measures the first GPU. A case that fails is left incomplete, and the others are measured still; the report is of what was
// measured, also beside an error, but nil where nothing could be.
func Run(o Options) (_ *Report, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	count := 1
	if cuda.Count() > 1 && slices.ContainsFunc(o.Cases, func(c string) bool { return slices.Contains(PairCases, c) }) {
		count = 2
	}
	devices, err := cuda.Open(count)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
	}()
	d := devices[0].(*cuda.Device)
	r := &runner{o: o, d: d, start: time.Now(), report: Report{
		Device: d.Info().Name, Driver: driverVersion() + ", " + cuda.Driver(), Commit: Commit(),
	}}
	defer r.release()
	for _, c := range Cases {
		if r.has(c) {
			r.report.Incomplete = append(r.report.Incomplete, Skipped{c, cutOff})
		}
	}
	r.findPeer(devices)
	if r.stream, err = d.NewStream(); err != nil {
		return nil, err
	}
	for range 2 {
		t, err := d.NewTimer()
		if err != nil {
			return nil, err
		}
		r.timers = append(r.timers, t)
	}
	err = r.run()
	return &r.report, errors.Join(append(r.failed, err)...)
}

// cutOff is why a case is incomplete that has not failed.
const cutOff = "not finished"

const warmups = 3

type runner struct {
	o       Options
	d       *cuda.Device
	peer    *cuda.Device // whose memory d reads; nil where there is none
	stream  device.Stream
	timers  []device.Timer // before and after what is timed
	start   time.Time
	buffers []device.Buffer // freed between cases
	kept    []device.Buffer // freed at the end
	report  Report
	failed  []error // cases
	unsaved error   // what Options.Save returned

	// What several cases use, made when the first one needs it.
	normals, sparse, half *filled
	stage                 device.Buffer
	link                  *link
	rates                 placement.Rates // of two GPUs
	pairLoads             map[string]load // of two GPUs, by placement
}

// filled is a table of one pattern: page-locked, and on the device.
type filled struct {
	pattern   pattern
	host, mem device.Buffer
}

func (r *runner) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.o.Cases, n) })
}

// measure runs a case, or a part of it, and notes how long it took. A case that fails is noted and is no error, unless nothing
// else can be measured after it: then the device has failed, or what several cases use is missing.
func (r *runner) measure(name string, run func() error) error {
	start := time.Now()
	fmt.Fprintf(r.o.Log, "%6.1fs %s …\n", start.Sub(r.start).Seconds(), name)
	err := run()
	i := slices.IndexFunc(r.report.Took, func(t Took) bool { return t.Case == name })
	if i < 0 {
		i = len(r.report.Took)
		r.report.Took = append(r.report.Took, Took{Case: name})
	}
	r.report.Took[i].Seconds += time.Since(start).Seconds()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", name, err)
	for i, s := range r.report.Incomplete {
		if s.Case == name || slices.Contains(measuredWith[name], s.Case) {
			r.report.Incomplete[i].Reason = err.Error()
		}
	}
	r.save()
	if name == setup || r.stream.Synchronize() != nil {
		return err
	}
	fmt.Fprintf(r.o.Log, "%6.1fs FAILED: %v\n", time.Since(r.start).Seconds(), err)
	r.failed = append(r.failed, err)
	return nil
}

// measuredWith are cases that others measure too.
var measuredWith = map[string][]string{"link": {"device-copy"}, "small-batch": {"small-batch-caller", "caller"}}

// finish notes that cases are measured in whole, unless they failed.
func (r *runner) finish(names ...string) error {
	r.report.Incomplete = slices.DeleteFunc(r.report.Incomplete, func(s Skipped) bool {
		return s.Reason == cutOff && slices.Contains(names, s.Case)
	})
	r.save()
	return r.unsaved
}

// save gives the report away as it stands. REQUIRES: finish follows, which says what went wrong.
func (r *runner) save() {
	if r.o.Save != nil && r.unsaved == nil {
		r.unsaved = r.o.Save(&r.report)
	}
}

// setup is the name of what several cases use.
const setup = "setup"

func (r *runner) run() error {
	if r.has("link", "device-copy") {
		if err := r.measure("link", r.reportLink); err != nil {
			return err
		}
		if err := r.finish("link", "device-copy"); err != nil {
			return err
		}
	}
	if err := r.measure(setup, r.tables); err != nil {
		return err
	}
	for _, rowBytes := range r.o.RowBytes {
		if err := r.rows(rowBytes); err != nil {
			return fmt.Errorf("rows of %d bytes: %w", rowBytes, err)
		}
	}
	if err := r.finish(perRow...); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"lookup", r.lookup}, {"load", r.loads}, {"sampling", r.sampling}, {"refresh", r.refresh}, {"memory", r.memory},
		{"pair-throughput", r.pairThroughput}, {"pair-placement", r.pairPlacement}, {"pair-refresh", r.pairRefresh},
		{"gather-misses-large", r.large},
	} {
		if !r.has(c.name) || slices.Contains(PairCases, c.name) && !r.pairs(c.name) {
			continue
		}
		if c.name == "gather-misses-large" { // it needs the memory
			r.forget()
		}
		err := r.measure(c.name, c.run)
		r.free()
		if err != nil {
			return err
		}
		if err := r.finish(c.name); err != nil {
			return err
		}
	}
	for _, t := range r.report.Took {
		fmt.Fprintf(r.o.Log, "%6.1fs %-19s took %.1f s\n", time.Since(r.start).Seconds(), t.Case, t.Seconds)
	}
	return nil
}

// tables makes the tables that are needed.
func (r *runner) tables() error {
	if r.has("hit-codecs") {
		if _, err := r.halfRows(); err != nil {
			return err
		}
	}
	if r.has("hit-codecs", "hit-decode", "miss-fetch", "gather-misses", "gather-hits", "gather-80", "small-batch", "small-batch-caller", "caller", "load", "sampling", "refresh", "memory") || r.pairs(PairCases...) {
		if _, err := r.normalRows(); err != nil {
			return err
		}
	}
	if r.has("hit-decode") {
		if _, err := r.sparseRows(); err != nil {
			return err
		}
	}
	return nil
}

// perRow are the cases of rows.
var perRow = []string{
	"hit-decode", "hit-codecs", "miss-fetch", "gather-hits", "gather-misses", "gather-80", "small-batch", "small-batch-caller", "caller", "peer-hits",
}

// rows runs the cases that are measured for each row length.
func (r *runner) rows(rowBytes int) error {
	defer r.free()
	var tier *transfer.Tier
	if r.has("hit-decode", "miss-fetch", "gather-misses") || r.pairs("peer-hits") {
		if err := r.measure(setup, func() (err error) {
			tier, err = r.load(r.normalRows, rowBytes)
			return err
		}); err != nil {
			return err
		}
		defer tier.Close()
	}
	if r.has("hit-decode") {
		if err := r.measure("hit-decode", func() error {
			err := r.hitDecode(tier, r.normalRows, "hit-decode", tier.Codec().Name(), r.d)
			r.free()
			if err != nil {
				return err
			}
			return r.sparseDecode(rowBytes)
		}); err != nil {
			return err
		}
		r.free()
	}
	if r.pairs("peer-hits") {
		if err := r.measure("peer-hits", func() error {
			return r.hitDecode(tier, r.normalRows, "peer-hits", tier.Codec().Name(), r.peer)
		}); err != nil {
			return err
		}
		r.free()
	}
	if r.has("hit-codecs") {
		if err := r.measure("hit-codecs", func() error { return r.hitCodecs(rowBytes) }); err != nil {
			return err
		}
		r.free()
	}
	if r.has("miss-fetch") {
		if err := r.measure("miss-fetch", func() error { return r.missFetch(tier) }); err != nil {
			return err
		}
		r.free()
	}
	return r.gathers(rowBytes, tier)
}

// normalRows, sparseRows and halfRows return the tables that cases share.
func (r *runner) normalRows() (*filled, error) { return r.shared(&r.normals, normals) }
func (r *runner) sparseRows() (*filled, error) { return r.shared(&r.sparse, sparse) }
func (r *runner) halfRows() (*filled, error)   { return r.shared(&r.half, halves) }

func (r *runner) shared(f **filled, make func() pattern) (*filled, error) {
	if *f != nil {
		return *f, nil
	}
	t := &filled{pattern: make()}
	var err error
	if t.host, err = r.d.AllocHost(r.o.TableBytes, "benchmark table"); err != nil {
		return nil, err
	}
	r.kept = append(r.kept, t.host)
	t.pattern.fill(t.host.Bytes())
	if t.mem, err = r.d.Alloc(r.o.TableBytes, "benchmark table"); err != nil {
		return nil, err
	}
	r.kept = append(r.kept, t.mem)
	*f = t
	return t, errors.Join(r.stream.Copy(t.mem, t.host), r.stream.Synchronize())
}

// load loads a table's rows as a cache would.
func (r *runner) load(of func() (*filled, error), rowBytes int) (*transfer.Tier, error) {
	f, err := of()
	if err != nil {
		return nil, err
	}
	return transfer.Load(r.d, transfer.SourceOf(whole(f.host.Bytes(), rowBytes), rowBytes), transfer.Options{Codec: codecName, DType: dtype.Float32, Seed: seed})
}

// whole returns as many bytes as whole rows take.
func whole(b []byte, rowBytes int) []byte { return b[:len(b)/rowBytes*rowBytes] }

const (
	codecName = "ibp4"
	seed      = 1
)

// staging returns page-locked memory of at least so many bytes, whatever it holds.
func (r *runner) staging(bytes int64) (device.Buffer, error) {
	if r.stage.Size() < bytes {
		r.d.Free(r.stage)
		r.stage = device.Buffer{}
		var err error
		if r.stage, err = r.d.AllocHost(max(bytes, r.o.TableBytes+r.o.TableBytes/16), "benchmark"); err != nil {
			return r.stage, err
		}
	}
	return r.stage.Slice(0, bytes), nil
}

func (r *runner) free() {
	for _, b := range r.buffers {
		r.d.Free(b)
	}
	r.buffers = nil
}

// forget frees what cases share.
func (r *runner) forget() {
	for _, b := range append(r.kept, r.stage) {
		r.d.Free(b)
	}
	r.kept, r.stage, r.normals, r.sparse, r.half = nil, device.Buffer{}, nil, nil, nil
}

func (r *runner) release() {
	r.free()
	r.forget()
	for _, t := range r.timers {
		t.Close()
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *runner) alloc(n int64) (device.Buffer, error) {
	b, err := r.d.Alloc(n, "benchmark")
	r.buffers = append(r.buffers, b)
	return b, err
}

func (r *runner) put(data []byte) (device.Buffer, error) {
	b, err := r.alloc(int64(len(data)))
	if err != nil {
		return b, err
	}
	return b, device.Upload(r.d, b, data)
}

// time returns the median seconds of what enqueue enqueues; i counts the runs.
func (r *runner) time(enqueue func(i int) error) (float64, error) {
	return r.timeAfter(r.o.Runs, func() error { return nil }, enqueue)
}

// timeAfter is time for so many runs, each after what before enqueues, untimed.
func (r *runner) timeAfter(runs int, before func() error, enqueue func(i int) error) (float64, error) {
	for i := range warmups {
		if err := enqueue(i); err != nil {
			return 0, err
		}
	}
	if err := r.stream.Synchronize(); err != nil {
		return 0, err
	}
	// Between runs so that each is measured alone: an event before and after.
	var times []float64
	for i := range runs {
		if err := errors.Join(
			before(), r.stream.Record(r.timers[0]), enqueue(warmups+i), r.stream.Record(r.timers[1]), r.timers[1].Synchronize(),
		); err != nil {
			return 0, err
		}
		d, err := r.timers[1].Since(r.timers[0])
		if err != nil {
			return 0, err
		}
		times = append(times, d.Seconds())
	}
	return median(times), nil
}

// clock returns the median seconds of do by the host's clock.
func (r *runner) clock(runs int, do func(i int) error) (float64, error) {
	var times []float64
	for i := range warmups + runs {
		start := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		if i >= warmups {
			times = append(times, time.Since(start).Seconds())
		}
	}
	return median(times), nil
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// check compares the first rows of an output with the rows of a table that they are to be.
func (r *runner) check(what string, out device.Buffer, table []byte, rows []int64, rowBytes int) error {
	n := min(len(rows), max(1, 1<<20/rowBytes))
	got := make([]byte, n*rowBytes)
	if err := device.Download(r.d, got, out.Slice(0, int64(len(got)))); err != nil {
		return err
	}
	for i, row := range rows[:n] {
		if !bytes.Equal(got[i*rowBytes:][:rowBytes], table[row*int64(rowBytes):][:rowBytes]) {
			return fmt.Errorf("%s: row %d at position %d differs from its source", what, row, i)
		}
	}
	return nil
}

func (r *runner) add(x Result) {
	x.setGoal()
	x.complete()
	goal := ""
	if x.GoalOf != "" {
		goal = fmt.Sprintf("%s %g: %v", x.GoalOf, x.Goal, x.Reached)
	}
	fmt.Fprintf(r.o.Log, "%6.1fs %-19s %5d %-11s %9d %10.2f %-8s %10.2f %7.2f  %s  %s\n", time.Since(r.start).Seconds(),
		x.Case, x.RowBytes, x.Codec, x.Batch, x.Value, x.Unit, x.BaselineValue, x.Ratio, goal, x.Detail)
	r.report.Results = append(r.report.Results, x)
	r.save()
}

func (r *runner) skip(name, format string, args ...any) {
	s := Skipped{name, fmt.Sprintf(format, args...)}
	fmt.Fprintf(r.o.Log, "%6.1fs %-19s skipped: %s\n", time.Since(r.start).Seconds(), s.Case, s.Reason)
	r.report.Skipped = append(r.report.Skipped, s)
	r.report.Incomplete = slices.DeleteFunc(r.report.Incomplete, func(s Skipped) bool { return s.Case == name })
}

// sets is how many batches take turns, so that no run finds its rows in a cache.
const sets = 4
