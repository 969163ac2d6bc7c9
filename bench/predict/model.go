package predict

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/docs/results"
	"github.com/tensorcache/tensorcache/dtype"
)

// Reference returns the model of the committed figures.
func Reference() (*Model, error) { return reference() }

var reference = sync.OnceValues(func() (*Model, error) {
	r, err := Parse(results.GPUBench)
	if err != nil {
		return nil, fmt.Errorf("predict: docs/results/gpu-bench.json: %w", err)
	}
	return NewModel(r)
})

// NewModel returns the model of a report, or an error that names the case that it lacks.
func NewModel(r *Report) (*Model, error) {
	m := &Model{Device: r.Device, decode: map[string]curve{}, stored: map[string]curve{}}
	var missing error
	all := func(name string, is func(*Result) bool) (found []*Result) {
		for i := range r.Results {
			if x := &r.Results[i]; x.Case == name && is(x) {
				found = append(found, x)
			}
		}
		slices.SortStableFunc(found, func(a, b *Result) int { return cmp.Compare(a.RowBytes, b.RowBytes) })
		return found
	}
	of := func(name string, is func(*Result) bool) []*Result {
		found := all(name, is)
		if len(found) == 0 && missing == nil {
			missing = fmt.Errorf("predict: report must have case %s to predict from", name)
		}
		return found
	}
	dense := func(x *Result) bool { return x.Codec != SparseCodec }
	labeled := func(codec string) func(*Result) bool { return func(x *Result) bool { return x.Codec == codec } }
	drawn := func(all []*Result, value func(*Result) float64) (c curve) {
		for _, x := range all {
			c = append(c, point{float64(x.RowBytes), value(x)})
		}
		return c
	}
	decodes, others := of("hit-decode", dense), of("hit-codecs", func(*Result) bool { return true })
	ones := of("hit-decode", labeled(SparseCodec))
	hits, misses, mixed := of("gather-hits", dense), of("gather-misses", dense), of("gather-80", dense)
	link, lookup, small := of("link", labeled("to device")), of("lookup", labeled("hits")), of("small-batch", func(x *Result) bool { return x.Batch == 1 })
	replays, large := of("captured", labeled("hits")), of("gather-misses-large", dense)
	if missing != nil {
		return nil, missing
	}
	parts := all("hit-parts", labeled("parts")) // reports of earlier builds have none
	rate := func(x *Result) float64 { return x.Value * 1e9 }
	m.link, m.lookup, m.oneLaunch = rate(link[0]), rate(lookup[0]), small[0].Value*1e-6
	m.gather = drawn(decodes, func(x *Result) float64 { return x.BaselineValue * 1e9 })
	for _, x := range slices.Concat(decodes, ones, others, parts) {
		label := x.Codec
		if label == SparseCodec {
			label = "ibp4" + OnesSuffix
		}
		m.decode[label] = append(m.decode[label], point{float64(x.RowBytes), rate(x)})
		m.stored[label] = append(m.stored[label], point{float64(x.RowBytes), 1 / cmp.Or(x.Compression, 1)})
	}
	m.zeroCopy = drawn(misses, func(x *Result) float64 { return x.FurtherValue(SortedZeroCopy) * 1e9 })
	// Rows that a batch misses twice are read once, so the share can exceed 1.
	for _, x := range misses {
		m.linkShare = append(m.linkShare, point{m.link * float64(x.RowBytes) / (x.BaselineValue * 1e9), min(1, x.Ratio)})
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
	slices.SortStableFunc(replays, func(a, b *Result) int { return cmp.Compare(a.Batch, b.Batch) })
	for _, x := range replays {
		n, rowBytes := float64(x.Batch), float64(x.RowBytes)
		m.replay = append(m.replay, point{n, max(0, x.Value*1e-6-n/m.lookup-n*rowBytes/m.decoding("ibp4", dtype.Float32, rowBytes, 0))})
	}
	m.plain, m.plainReplay = small[0].BaselineValue*1e-6, replays[0].BaselineValue*1e-6
	m.translation = translationOf(m, misses[0], mixed[0], large[0])
	m.sharing = sharingOf(m, large, all("ngram-prefill", func(*Result) bool { return true }))
	return m, nil
}
