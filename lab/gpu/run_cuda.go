//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/version"
	"github.com/tensorcache/tensorcache/slab/placement"
	"github.com/tensorcache/tensorcache/transfer"
)

// Run measures the first GPU. A case that fails is left incomplete, and the other cases are still measured. The report says what was
// measured, also beside an error, but is nil if nothing could be.
func Run(o Options) (_ *Report, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	count := 1
	if cuda.Count() > 1 && slices.ContainsFunc(o.Cases, isPair) {
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
	r := &runner{o: o, d: devices[0].(*cuda.Device), start: time.Now()}
	defer r.release()
	if err := try(r.open); err != nil {
		return nil, err
	}
	r.report = Report{Device: r.d.Info().Name, Driver: driverVersion() + ", " + cuda.Driver(), Commit: version.Commit()}
	for _, c := range Cases {
		if r.has(c) {
			r.report.Incomplete = append(r.report.Incomplete, Skipped{Case: c, Reason: cutOff})
		}
	}
	r.findPeer(devices)
	err = try(r.run)
	return &r.report, errors.Join(append(r.failed, err)...)
}

// cutOff is why a case is incomplete that has not failed.
const cutOff = "not finished"

type runner struct {
	o       Options
	d       *cuda.Device
	peer    *cuda.Device // d reads its memory; nil if there is no such GPU
	stream  device.Stream
	timers  [2]device.Timer // before and after what is timed
	start   time.Time
	buffers []device.Buffer // of the case
	kept    []device.Buffer // of tables that cases share
	report  Report
	failed  []error // cases
	unsaved error   // what Options.Save returned

	// What several cases use, made when the first one needs it.
	normals, sparse, halves, float16s *table
	stage                             device.Buffer
	link                              *link
	rates                             placement.Rates              // of two GPUs
	pairLoads                         map[cache.PlacementMode]load // of two GPUs, by placement
}

func (r *runner) open() {
	r.stream = get(r.d.NewStream())
	for i := range r.timers {
		r.timers[i] = get(r.d.NewTimer())
	}
}

// has says whether any of these cases is to be measured, and can be.
func (r *runner) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.o.Cases, n) })
}

// can says whether any of these cases is to be measured, and there are as many GPUs as it needs.
func (r *runner) can(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return r.has(n) && (r.peer != nil || !isPair(n)) })
}

func isPair(name string) bool { return slices.Contains(PairCases, name) }

// setup is the name of what several cases use.
const setup = "setup"

// measure runs a case, or a part of it, and notes how long it took. It notes a case that fails and returns, unless nothing else can be
// measured then: the device has failed, or what several cases use is missing.
func (r *runner) measure(name string, run func()) {
	start := time.Now()
	fmt.Fprintf(r.o.Log, "%6.1fs %s …\n", start.Sub(r.start).Seconds(), name)
	err := try(run)
	i := slices.IndexFunc(r.report.Took, func(t Took) bool { return t.Case == name })
	if i < 0 {
		i = len(r.report.Took)
		r.report.Took = append(r.report.Took, Took{Case: name})
	}
	r.report.Took[i].Seconds += time.Since(start).Seconds()
	if err == nil {
		return
	}
	err = fmt.Errorf("%s: %w", name, err)
	for i, s := range r.report.Incomplete {
		if s.Case == name || slices.Contains(measuredWith[name], s.Case) {
			r.report.Incomplete[i].Reason = err.Error()
		}
	}
	r.save()
	if name == setup || r.stream.Synchronize() != nil {
		must(err)
	}
	fmt.Fprintf(r.o.Log, "%6.1fs FAILED: %v\n", time.Since(r.start).Seconds(), err)
	r.failed = append(r.failed, err)
}

// measuredWith are cases that are measured together with another one.
var measuredWith = map[string][]string{
	"link": {"device-copy"}, "ngram-decode": {"ngram-prefill"}, "pooled-hits": {"pooled-gather"}, "small-batch": {"small-batch-caller", "caller"},
}

// finish notes that cases are measured in whole, unless they failed.
func (r *runner) finish(names ...string) {
	r.report.Incomplete = slices.DeleteFunc(r.report.Incomplete, func(s Skipped) bool {
		return s.Reason == cutOff && slices.Contains(names, s.Case)
	})
	r.save()
	must(r.unsaved)
}

// save passes on the report as it stands. REQUIRES: a call of finish follows, which returns the error.
func (r *runner) save() {
	if r.o.Save != nil && r.unsaved == nil {
		r.unsaved = r.o.Save(&r.report)
	}
}

// runs is the name of a case, and the function that measures it.
type runs struct {
	name string
	run  func()
}

func (r *runner) run() {
	if r.has("link", "device-copy") {
		r.measure("link", r.reportLink)
		r.finish("link", "device-copy")
	}
	r.measure(setup, func() {
		if r.has("hit-codecs") {
			r.halfRows()
			r.float16Rows()
		}
		if r.can(withNormals...) {
			r.normalRows()
		}
		if r.has("hit-decode", "gather-hits-codecs") || r.has("hit-codecs") && slices.Contains(r.o.Codecs, sparseRowsCodec) {
			r.sparseRows()
		}
	})
	for _, rowBytes := range r.o.RowBytes {
		if err := try(func() { r.rows(rowBytes) }); err != nil {
			must(fmt.Errorf("rows of %d bytes: %w", rowBytes, err))
		}
	}
	r.finish(perRow...)
	for _, c := range []runs{
		{"hit-parts", r.hitParts}, {"lookup", r.lookup}, {"load", r.loads}, {"sampling", r.sampling}, {"refresh", r.refresh},
		{"pooled-hits", r.pooledHits}, {"pooled-80", r.pooled80}, {"pooled-tables", r.pooledOfTables},
		{"buddy-hits", r.buddyHits}, {"buddy-overflow", r.buddyOverflow}, {"buddy-budget", r.buddyBudget}, {"buddy-updates", r.buddyUpdates}, {"buddy-peers", r.buddyPeers},
		{"pair-throughput", r.pairThroughput}, {"pair-placement", r.pairPlacement}, {"pair-refresh", r.pairRefresh},
		{"gather-misses-large", r.large}, {"training-fetch", r.trainingFetch}, {"ngram-decode", r.ngrams},
	} {
		names := append([]string{c.name}, measuredWith[c.name]...)
		if !r.can(names...) {
			continue
		}
		if slices.Contains([]string{"gather-misses-large", "training-fetch", "ngram-decode"}, c.name) { // they need the memory
			r.forget()
		}
		r.measure(c.name, c.run)
		r.free()
		r.finish(names...)
	}
	for _, t := range r.report.Took {
		fmt.Fprintf(r.o.Log, "%6.1fs %-19s took %.1f s\n", time.Since(r.start).Seconds(), t.Case, t.Seconds)
	}
}

// perRow are the cases that are measured for each row length, and withNormals those that use the table of N(0,1) elements.
var (
	small  = []string{"small-batch", "small-batch-caller", "caller"}
	perRow = append([]string{"hit-decode", "hit-codecs", "miss-fetch", "gather-hits", "gather-hits-codecs", "gather-misses", "gather-80", "captured", "peer-hits"}, small...)

	withNormals = slices.Concat(perRow, []string{"load", "sampling", "refresh"}, PairCases)
)

// rows measures the cases of a row length.
func (r *runner) rows(rowBytes int) {
	defer r.free()
	var tier *transfer.Tier
	if r.can("hit-decode", "miss-fetch", "gather-misses", "peer-hits") {
		r.measure(setup, func() { tier = r.load(r.normalRows(), rowBytes) })
		defer tier.Close()
	}
	for _, c := range []runs{
		{"hit-decode", func() {
			r.hitDecode(tier, r.normalRows(), "hit-decode", tier.Codec().Name(), r.d)
			r.free()
			r.sparseDecode(rowBytes)
		}},
		{"peer-hits", func() { r.hitDecode(tier, r.normalRows(), "peer-hits", tier.Codec().Name(), r.peer) }},
		{"hit-codecs", func() { r.hitCodecs(rowBytes) }},
		{"miss-fetch", func() { r.missFetch(tier) }},
		{"gather-hits-codecs", func() { r.gatherHitsCodecs(rowBytes) }},
	} {
		if r.can(c.name) {
			r.measure(c.name, c.run)
			r.free()
		}
	}
	r.gathers(rowBytes, tier)
}

// table is filled with one pattern: page-locked, and on the device.
type table struct{ host, mem device.Buffer }

// normalRows, sparseRows, halfRows and float16Rows return the tables that cases share.
func (r *runner) normalRows() *table  { return r.shared(&r.normals, normals) }
func (r *runner) sparseRows() *table  { return r.shared(&r.sparse, sparse) }
func (r *runner) halfRows() *table    { return r.shared(&r.halves, halves) }
func (r *runner) float16Rows() *table { return r.shared(&r.float16s, float16s) }

func (r *runner) shared(t **table, values func(bytes int64) pattern) *table {
	if *t == nil {
		*t = r.tableOf(values(r.o.TableBytes), r.o.TableBytes, &r.kept)
	}
	return *t
}

// tableOf makes a table of a pattern. Its memory is added to buffers.
func (r *runner) tableOf(p pattern, size int64, buffers *[]device.Buffer) *table {
	host := get(r.d.AllocHost(size, "benchmark table"))
	*buffers = append(*buffers, host)
	p.fill(host.Bytes())
	mem := get(r.d.Alloc(size, "benchmark table"))
	*buffers = append(*buffers, mem)
	must(r.stream.Copy(mem, host))
	must(r.stream.Synchronize())
	return &table{host, mem}
}

const (
	codecName = "ibp4"
	seed      = 1
)

// load loads a table's rows as a cache does.
func (r *runner) load(t *table, rowBytes int) *transfer.Tier {
	return get(transfer.Load(r.d, transfer.SourceOf(whole(t.host.Bytes(), rowBytes), rowBytes), transfer.Options{Codec: codecName, DType: dtype.Float32, Seed: seed}))
}

// whole returns the whole rows of b.
func whole(b []byte, rowBytes int) []byte { return b[:len(b)/rowBytes*rowBytes] }

func (r *runner) add(x Result) {
	setGoal(&x)
	complete(&x)
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
	s := Skipped{Case: name, Reason: fmt.Sprintf(format, args...)}
	fmt.Fprintf(r.o.Log, "%6.1fs %-19s skipped: %s\n", time.Since(r.start).Seconds(), s.Case, s.Reason)
	r.report.Skipped = append(r.report.Skipped, s)
	r.report.Incomplete = slices.DeleteFunc(r.report.Incomplete, func(s Skipped) bool { return s.Case == name })
}
