package gpu

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/docs/results"
	"github.com/tensorcache/tensorcache/dtype"
)

// Model predicts how long a GPU takes for a batch, from the figures of a Report of that GPU. docs/performance.md has the formula and
// how far it is from measured batches. Times are in seconds, rates in bytes of rows a second unless they say otherwise. A Model is
// safe for concurrent use.
type Model struct {
	// Device is the name of the GPU.
	Device string
	// link copies page-locked memory to the device; linkShare is how much of that rate misses reach, by the bytes that a row takes there.
	link      float64
	linkShare curve
	// lookup is keys a second in the hashmap.
	lookup float64
	// gather copies uncompressed rows in device memory; decode writes hits, by the label of the codec, and stored is the stored ÷ raw bytes of the rows it
	// was measured on.
	gather curve
	decode map[string]curve
	stored map[string]curve
	// zeroCopy reads uncompressed rows of page-locked memory in the order of their addresses.
	zeroCopy curve
	// overlap is the time of the slower of hits and misses ÷ the time of both together.
	overlap curve
	// oneLaunch and launches are the times that do not depend on the rows: of a batch of at most oneLaunchRows, and of a larger one.
	oneLaunch, launches float64
	// page is the time of a page of the host tier that a batch's misses touch: address translation.
	page float64
}

const (
	// oneLaunchRows is the most rows of a batch that is one launch, if rows are shorter than oneLaunchBytes
	// (cache/internal/read/route.go).
	oneLaunchRows  = 8192
	oneLaunchBytes = 8 << 10
	// partsCodec is the codec for rows of parts.
	partsCodec = "parts"
	// pageBytes is the page by which misses are ordered.
	pageBytes = 64 << 10
	// gatherCached is the share of the table that gather cases cache, and gatherHits the share of hits of gather-80.
	gatherCached = 0.5
	gatherHits   = 0.8
)

// A curve has a value at some row lengths, ascending.
type curve []struct{ rowBytes, value float64 }

// at interpolates by the logarithm of the row length. From the longest row on the value is constant. rate says that the value is bytes a
// second: below the shortest row, rows a second are constant then.
func (c curve) at(rowBytes float64, rate bool) float64 {
	first, last := c[0], c[len(c)-1]
	switch {
	case rowBytes <= first.rowBytes:
		if rate {
			return first.value * rowBytes / first.rowBytes
		}
		return first.value
	case rowBytes >= last.rowBytes:
		return last.value
	}
	i := slices.IndexFunc(c, func(p struct{ rowBytes, value float64 }) bool { return p.rowBytes >= rowBytes })
	a, b := c[i-1], c[i]
	t := math.Log(rowBytes/a.rowBytes) / math.Log(b.rowBytes/a.rowBytes)
	return a.value + t*(b.value-a.value)
}

// Batch is what a prediction is for. Numbers may be means of several batches.
type Batch struct {
	RowBytes int
	// Codec is the name of the codec, and DType the rows' element type.
	Codec string
	DType dtype.Type
	// Lookups is the rows of the batch, Hits those that are cached.
	Lookups, Hits float64
	// Stored is the stored ÷ raw bytes of the table's rows. 0: those of dense rows.
	Stored float64
	// MissBytes is the stored bytes that the misses read from the host.
	MissBytes float64
	// UncachedBytes is the host memory over which the rows that are not cached spread.
	UncachedBytes float64
}

// Reference returns the model of the committed figures.
func Reference() (*Model, error) { return reference() }

var reference = sync.OnceValues(func() (*Model, error) {
	r, err := decodeReport(results.GPUBench)
	if err != nil {
		return nil, fmt.Errorf("gpu: docs/results/gpu-bench.json: %w", err)
	}
	return NewModel(r)
})

// NewModel returns the model of a report, or an error that names the case that it lacks.
func NewModel(r *Report) (*Model, error) {
	m := &Model{Device: r.Device, decode: map[string]curve{}, stored: map[string]curve{}}
	var missing error
	of := func(name string, is func(*Result) bool) (found []*Result) {
		for i := range r.Results {
			if x := &r.Results[i]; x.Case == name && is(x) {
				found = append(found, x)
			}
		}
		slices.SortStableFunc(found, func(a, b *Result) int { return cmp.Compare(a.RowBytes, b.RowBytes) })
		if len(found) == 0 && missing == nil {
			missing = fmt.Errorf("gpu: report must have case %s to predict from", name)
		}
		return found
	}
	dense := func(x *Result) bool { return x.Codec != SparseCodec }
	labeled := func(codec string) func(*Result) bool { return func(x *Result) bool { return x.Codec == codec } }
	drawn := func(all []*Result, value func(*Result) float64) (c curve) {
		for _, x := range all {
			c = append(c, struct{ rowBytes, value float64 }{float64(x.RowBytes), value(x)})
		}
		return c
	}
	decodes, others := of("hit-decode", dense), of("hit-codecs", func(*Result) bool { return true })
	var parts []*Result // of the codec for rows of parts, if it has been measured
	for i := range r.Results {
		if x := &r.Results[i]; x.Case == "hit-parts" && x.Codec == partsCodec {
			parts = append(parts, x)
		}
	}
	ones := of("hit-decode", labeled(SparseCodec))
	hits, misses, mixed := of("gather-hits", dense), of("gather-misses", dense), of("gather-80", dense)
	link, lookup, small := of("link", labeled("to device")), of("lookup", labeled("hits")), of("small-batch", func(x *Result) bool { return x.Batch == 1 })
	if missing != nil {
		return nil, missing
	}
	rate := func(x *Result) float64 { return x.Value * 1e9 }
	m.link, m.lookup, m.oneLaunch = rate(link[0]), rate(lookup[0]), small[0].Value*1e-6
	m.gather = drawn(decodes, func(x *Result) float64 { return x.BaselineValue * 1e9 })
	for _, x := range slices.Concat(decodes, ones, others, parts) {
		label := x.Codec
		if label == SparseCodec {
			label = "ibp4" + OnesSuffix
		}
		m.decode[label] = append(m.decode[label], struct{ rowBytes, value float64 }{float64(x.RowBytes), rate(x)})
		m.stored[label] = append(m.stored[label], struct{ rowBytes, value float64 }{float64(x.RowBytes), 1 / cmp.Or(x.Compression, 1)})
	}
	m.zeroCopy = drawn(misses, func(x *Result) float64 { return x.FurtherValue(SortedZeroCopy) * 1e9 })
	// Rows that a batch misses twice are read once, so the share can exceed 1.
	for _, x := range misses {
		m.linkShare = append(m.linkShare, struct{ rowBytes, value float64 }{m.link * float64(x.RowBytes) / (x.BaselineValue * 1e9), min(1, x.Ratio)})
	}
	m.overlap = drawn(mixed, func(x *Result) float64 { return min(1, x.Ratio) })

	// What gather-hits takes longer than its lookups and its decoding.
	var rest []float64
	for _, x := range hits {
		n, rowBytes := float64(x.Batch), float64(x.RowBytes)
		rest = append(rest, n*rowBytes/rate(x)-n/m.lookup-n*rowBytes/m.decoding(x.Codec, dtype.Float32, rowBytes, 0))
	}
	slices.Sort(rest)
	m.launches = max(0, (rest[(len(rest)-1)/2]+rest[len(rest)/2])/2)
	// Misses of the shortest rows wait for address translation, not for the link. The baseline is the misses of gather-80 alone.
	x := mixed[0]
	n := float64(x.Batch)
	alone := n * float64(x.RowBytes) / (x.BaselineValue * 1e9)
	m.page = max(0, (alone-m.launches-n/m.lookup)/pagesOf(n*(1-gatherHits), float64(x.TableBytes)*(1-gatherCached)))
	return m, nil
}

// pagesOf is how many pages of so many bytes some random rows touch, on average.
func pagesOf(rows, bytes float64) float64 {
	pages := max(1, bytes/pageBytes)
	return pages * (1 - math.Exp(-rows/pages))
}

// decoding is the rate at which hits are written. Rows that are stored in fewer bytes than dense ones take less time, down to what rows of zeros and few
// ones take, where those have been measured.
func (m *Model) decoding(codec string, of dtype.Type, rowBytes, stored float64) float64 {
	label := codec
	switch {
	case of == dtype.Float16 && m.decode[codec+Float16Suffix] != nil:
		label += Float16Suffix
	case of.Size() == 2 && m.decode[codec+BFloat16Suffix] != nil:
		label += BFloat16Suffix
	}
	dense, ok := m.decode[label]
	if !ok {
		return m.gather.at(rowBytes, true)
	}
	rate, ones := dense.at(rowBytes, true), m.decode[codec+OnesSuffix]
	if ones == nil || stored == 0 {
		return rate
	}
	most, least := m.stored[label].at(rowBytes, false), m.stored[codec+OnesSuffix].at(rowBytes, false)
	part := min(1, max(0, (stored-least)/(most-least)))
	return 1 / (part/rate + (1-part)/ones.at(rowBytes, true))
}

// Knows says whether the model has figures of a codec; none, rows as they are, is one.
func (m *Model) Knows(codec string) bool {
	return codec == "none" || m.decode[codec] != nil || m.decode[codec+BFloat16Suffix] != nil
}

// Seconds predicts a batch that is read to device memory, on one GPU that does nothing else. Misses that the host's processors help with
// are not modelled. REQUIRES: Knows(b.Codec).
func (m *Model) Seconds(b Batch) float64 {
	rowBytes, misses := float64(b.RowBytes), b.Lookups-b.Hits
	miss := 0.0
	if misses > 0 {
		sectors := math.Ceil(b.MissBytes/misses/sectorBytes) * sectorBytes
		miss = misses * sectors / (m.link * m.linkShare.at(sectors, true))
	}
	launch := m.oneLaunch
	if b.Lookups > oneLaunchRows || b.RowBytes >= oneLaunchBytes {
		launch = m.launches
		miss = max(miss, m.page*pagesOf(misses, b.UncachedBytes))
	}
	rows := max(b.Lookups*rowBytes/m.decoding(b.Codec, b.DType, rowBytes, b.Stored), miss)
	if b.Hits > 0 && misses > 0 {
		rows /= m.overlap.at(rowBytes, false)
	}
	return launch + b.Lookups/m.lookup + rows
}

// Uncached predicts a batch without a cache: a kernel that reads all rows, uncompressed, from page-locked memory in the order of their
// addresses. Sorting is not counted.
func (m *Model) Uncached(rows float64, rowBytes int) float64 {
	return rows * float64(rowBytes) / m.zeroCopy.at(float64(rowBytes), true)
}
