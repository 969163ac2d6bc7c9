package predict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/docs/results"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// committed returns the committed figures, and the model of them.
func committed(t *testing.T) (*Model, *Report) {
	t.Helper()
	m, err := Reference()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(results.GPUBench)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// TestModel_PredictsMeasured compares the model with batches that a GPU has been measured with. The bounds are those that docs/performance.md
// states.
func TestModel_PredictsMeasured(t *testing.T) {
	t.Parallel()
	m, r := committed(t)
	sectors := map[int]float64{} // bytes of sectors of a missed row
	for _, x := range r.Results {
		if x.Case == "gather-misses" {
			sectors[x.RowBytes] = m.link * float64(x.RowBytes) / (x.BaselineValue * 1e9)
		}
	}
	// Of sampling and refresh, caches without; of pair-throughput one GPU, whose cache holds a twentieth of the table.
	hitShare := map[string]float64{"gather-hits": 1, "gather-80": 0.8, "gather-misses": 0, "small-batch": 0.8, "sampling": 0.8, "refresh": 0.8, "pair-throughput": 0}
	bound := map[string][2]float64{
		"gather-hits": {-0.08, 0.08}, "gather-80": {-0.08, 0.08}, "gather-misses": {-0.08, 0.25}, "small-batch": {-0.25, 0.30}, "sampling": {-0.08, 0.08},
		"refresh": {-0.08, 0.08}, "pair-throughput": {-0.20, 0.05},
	}
	compared := map[string]int{}
	for _, x := range r.Results {
		hits, ok := hitShare[x.Case]
		if !ok {
			continue
		}
		n, uncached := float64(x.Batch), 0.5
		measured := n * float64(x.RowBytes) / (x.Value * 1e9)
		if (x.Case == "refresh" || x.Case == "pair-throughput") && x.Unit != "us" && x.Unit != "GB/s" {
			continue
		}
		switch x.Case {
		case "refresh":
			measured = x.FurtherValue("median without refreshing") * 1e-6
		case "pair-throughput":
			if _, err := fmt.Sscanf(x.Detail, "hit rates %f", &hits); err != nil {
				t.Fatalf("%s: %v", x.Detail, err)
			}
			hits, uncached, measured = hits/100, 0.95, n*float64(x.RowBytes)/(x.BaselineValue*1e9)
		case "small-batch":
			measured = x.Value * 1e-6
		case "sampling":
			measured = x.BaselineValue * 1e-6
		}
		if x.Codec == "hits" {
			hits = 1
		}
		predicted := m.Seconds(Batch{
			RowBytes: x.RowBytes, Codec: "ibp4", DType: dtype.Float32, Lookups: n, Hits: n * hits,
			MissBytes: n * (1 - hits) * sectors[x.RowBytes], UncachedBytes: float64(x.TableBytes) * uncached,
		})
		off := predicted/measured - 1
		t.Logf("%s, %d B, %d rows, %g hits: measured %.1f µs, predicted %.1f, %+.1f %%", x.Case, x.RowBytes, x.Batch, hits, measured*1e6, predicted*1e6, 100*off)
		if b := bound[x.Case]; !(off >= b[0] && off <= b[1]) {
			t.Errorf("%s, %d B, %d rows: predicted %.1f µs, measured %.1f: %+.1f %% must be %+.0f to %+.0f %%", x.Case, x.RowBytes, x.Batch, predicted*1e6, measured*1e6, 100*off, 100*b[0], 100*b[1])
		}
		compared[x.Case]++
	}
	for name := range bound {
		if compared[name] == 0 {
			t.Errorf("%s: no batch was compared", name)
		}
	}
}

// TestModel_LargeTables compares the model with batches of tables whose pages a GPU does not all know, among them the steps of a language model that reads n-gram tables,
// and misses that the host helps with.
func TestModel_LargeTables(t *testing.T) {
	t.Parallel()
	m, r := committed(t)
	bound := map[string][2]float64{
		"gather-misses-large": {-0.15, 0.02}, "training-fetch": {-0.20, 0.05}, "ngram-decode": {-0.20, 0.10}, "ngram-prefill": {-0.10, 0.05}, "zero-copy": {-0.08, 0.08}, "zero-copy, sorted": {-0.08, 0.02},
	}
	compared := map[string]int{}
	compare := func(name string, x *Result, predicted, measured float64) {
		off := predicted/measured - 1
		t.Logf("%s, %s, %d B, %d rows: measured %.1f µs, predicted %.1f, %+.1f %%", name, x.Codec, x.RowBytes, x.Batch, measured*1e6, predicted*1e6, 100*off)
		if b := bound[name]; !(off >= b[0] && off <= b[1]) {
			t.Errorf("%s, %s, %d B, %d rows: %+.1f %% must be %+.0f to %+.0f %%", name, x.Codec, x.RowBytes, x.Batch, 100*off, 100*b[0], 100*b[1])
		}
		compared[name]++
	}
	for i := range r.Results {
		x := &r.Results[i]
		n, table := float64(x.Batch), float64(x.TableBytes)
		hits, cached, threads := 0.0, 0.0, HostThreads
		codec, variant, _ := strings.Cut(x.Codec, ", ")
		measured := x.Value * 1e-6
		plain := Uncached{Rows: n, RowBytes: x.RowBytes, TableBytes: table, Captured: x.Case == "ngram-decode"}
		switch x.Case {
		case "gather-misses-large":
			cached, threads, measured = largeCached, x.HostThreads, n*float64(x.RowBytes)/(x.Value*1e9)
			plain.TableBytes *= 1 - largeCached
			compare("zero-copy", x, m.Uncached(plain), n*float64(x.RowBytes)/(x.FurtherValue(UnsortedZeroCopy)*1e9))
			plain.Sorted = true
			compare("zero-copy, sorted", x, m.Uncached(plain), n*float64(x.RowBytes)/(x.BaselineValue*1e9))
		case "training-fetch":
			if x.QueueDepth > 1 || codec == "auto" {
				continue
			}
			cached, measured = 0.1, x.Value*1e-3
			if _, err := fmt.Sscanf(strings.SplitN(x.Detail, "; ", 3)[2], "%f hits", &hits); err != nil {
				t.Fatalf("%s: %v", x.Detail, err)
			}
		case "ngram-decode", "ngram-prefill":
			if strings.HasSuffix(variant, "bfloat16") || strings.HasSuffix(codec, " packed") {
				continue // which the model does not know
			}
			cached = ngramCached
			if strings.HasSuffix(variant, "hits") {
				hits = 1
			} else if _, err := fmt.Sscanf(x.Detail, "%f hits", &hits); err != nil {
				t.Fatalf("%s: %v", x.Detail, err)
			}
			uva := x.BaselineValue
			if v := x.FurtherValue("zero-copy of all rows, uncompressed"); v > 0 {
				uva = v
			}
			compare("zero-copy", x, m.Uncached(plain), uva*1e-6)
		default:
			continue
		}
		stored := float64(x.RowBytes) * m.storedShare(codec, float64(x.RowBytes))
		compare(x.Case, x, m.Seconds(Batch{
			RowBytes: x.RowBytes, Codec: codec, DType: dtype.Float32, Lookups: n, Hits: n * hits, MissBytes: n * (1 - hits) * stored, UncachedBytes: table * (1 - cached), TierBytes: table,
			Captured: plain.Captured, HostThreads: threads,
		}), measured)
	}
	for name := range bound {
		if compared[name] == 0 {
			t.Errorf("%s: no batch was compared", name)
		}
	}
}

// TestModel_Terms pins what each part of a batch costs.
func TestModel_Terms(t *testing.T) {
	t.Parallel()
	m, err := Reference()
	if err != nil {
		t.Fatal(err)
	}
	base := Batch{RowBytes: 512, Codec: "ibp4", DType: dtype.Float32, Lookups: 1e5, Hits: 5e4, MissBytes: 5e4 * 448, UncachedBytes: 1 << 28}
	with := func(change func(*Batch)) float64 {
		b := base
		change(&b)
		return m.Seconds(b)
	}
	same := with(func(*Batch) {})
	for name, slower := range map[string]float64{
		"fewer hits":                      with(func(b *Batch) { b.Hits, b.MissBytes = 4e4, 6e4*448 }),
		"longer misses":                   with(func(b *Batch) { b.MissBytes *= 1.2 }),
		"more rows":                       with(func(b *Batch) { b.Lookups, b.Hits, b.MissBytes = 2e5, 1e5, 1e5*448 }),
		"a slower codec, nearly all hits": with(func(b *Batch) { b.Codec, b.Hits, b.MissBytes = "ndzip", 1e5-100, 100*448 }) - with(func(b *Batch) { b.Hits, b.MissBytes = 1e5-100, 100*448 }) + same,
		"pages that misses spread over":   with(func(b *Batch) { b.UncachedBytes = 1 << 40 }),
	} {
		if !(slower > 1.01*same) {
			t.Errorf("%s: %.1f µs, must be more than %.1f", name, slower*1e6, same*1e6)
		}
	}
	if hidden := with(func(b *Batch) { b.Codec = "rank" }); hidden != same {
		t.Errorf("a slower codec whose hits take less time than the misses: %.2f µs, want %.2f", hidden*1e6, same*1e6)
	}
	hits := func(stored float64) float64 {
		return with(func(b *Batch) {
			b.Codec, b.RowBytes, b.Hits, b.MissBytes, b.Stored = "sparse", 4096, b.Lookups, 0, stored
		})
	}
	if dense, half, few := hits(0), hits(0.45), hits(0.001); !(few < half && half < dense) || hits(1) != dense {
		t.Errorf("hits of rows that are stored in 0.1 %%, 45 %% and all of their bytes: %.2f, %.2f, %.2f µs, of dense ones %.2f", few*1e6, half*1e6, hits(1)*1e6, dense*1e6)
	}
	r, err := Parse(results.GPUBench)
	if err != nil {
		t.Fatal(err)
	}
	sorted := 0.0 // GB/s of rows of 512 bytes
	for _, x := range r.Results {
		if x.Case == "gather-misses" && x.RowBytes == 512 {
			sorted = x.FurtherValue(SortedZeroCopy)
		}
	}
	if a, b := m.Uncached(Uncached{Rows: 1e6, RowBytes: 512, TableBytes: 1 << 30, Sorted: true})-m.plain, 1e6*512/(sorted*1e9); math.Abs(a/b-1) > 0.01 {
		t.Errorf("no cache: %.1f µs, want %.1f", a*1e6, b*1e6)
	}
	if a, b := m.Uncached(Uncached{Rows: 1e5, RowBytes: 64}), m.Uncached(Uncached{Rows: 1e5, RowBytes: 128}); math.Abs(a/b-1) > 1e-9 {
		t.Errorf("rows shorter than those measured take %.1f and %.1f µs, want as many a second", a*1e6, b*1e6)
	}
	for _, table := range []float64{1 << 28, 1 << 30, 1 << 34, 1 << 38} { // reading in order never takes longer
		for _, rows := range []float64{1e3, 1e4, 1e5, 1e6} {
			u := Uncached{Rows: rows, RowBytes: 264, TableBytes: table}
			unsorted := m.Uncached(u)
			if u.Sorted = true; m.Uncached(u) > unsorted*1.001 {
				t.Errorf("%g rows of %g bytes: in order %.1f µs, as they come %.1f", rows, table, m.Uncached(u)*1e6, unsorted*1e6)
			}
		}
	}
	// Figures that the committed ones need not have.
	r.Results = slices.DeleteFunc(r.Results, func(x Result) bool { return x.Case == "hit-parts" || strings.HasSuffix(x.Codec, Float16Suffix) })
	without, err := NewModel(r)
	if err != nil {
		t.Fatalf("without hit-parts: %v", err)
	}
	r.Results = append(r.Results, Result{Case: "hit-parts", Codec: "parts", RowBytes: 528, Value: 500, Compression: 1.1},
		Result{Case: "hit-parts", Codec: "zipnn", RowBytes: 528, Value: 1}, Result{Case: "hit-codecs", Codec: "rank" + Float16Suffix, RowBytes: 512, Value: 100})
	more, err := NewModel(r)
	if err != nil || !more.Knows("parts") {
		t.Fatalf("with hit-parts: %v", err)
	}
	of := func(m *Model, codec string, elements dtype.Type) float64 {
		return m.Seconds(Batch{RowBytes: 528, Codec: codec, DType: elements, Lookups: 1e6, Hits: 1e6})
	}
	if parts, plain := of(more, "parts", dtype.Uint8), of(more, "none", dtype.Uint8); parts < plain || parts > 5*plain {
		t.Errorf("rows of parts: %g s, uncompressed ones %g", parts, plain)
	}
	if a, b := of(more, "zipnn", dtype.Float32), of(without, "zipnn", dtype.Float32); a != b {
		t.Errorf("zipnn as of hit-parts: %g s, want %g", a, b)
	}
	if a, b := of(more, "rank", dtype.Float16), of(more, "rank", dtype.BFloat16); a < 2*b || of(without, "rank", dtype.Float16) != b {
		t.Errorf("float16: %g s, bfloat16 %g; without figures of float16 %g", a, b, of(without, "rank", dtype.Float16))
	}
	for codec, known := range map[string]bool{"none": true, "rank": true, "ibp2": true, "sleek-eb:0.1": false} {
		if m.Knows(codec) != known {
			t.Errorf("codec %s: known is %v", codec, !known)
		}
	}
}

func TestNewModel_MissingCase(t *testing.T) {
	t.Parallel()
	r, err := Parse(results.GPUBench)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "hit-decode", "hit-codecs", "gather-hits", "gather-misses", "gather-80", "lookup", "small-batch", "captured", "gather-misses-large"} {
		part := *r
		part.Results = nil
		for _, x := range r.Results {
			if x.Case != name {
				part.Results = append(part.Results, x)
			}
		}
		if _, err := NewModel(&part); err == nil || !strings.Contains(err.Error(), "case "+name+" ") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestGPUCost_Measured compares the cost by which rows are admitted with batches a fifth of which misses, whose hits are read meanwhile.
func TestGPUCost_Measured(t *testing.T) {
	t.Parallel()
	r, err := Parse(results.GPUBench)
	if err != nil {
		t.Fatal(err)
	}
	link, stored := 0.0, map[int]float64{}
	for _, x := range r.Results {
		switch {
		case x.Case == "link" && x.Codec == "to device":
			link = x.Value * 1e9
		case x.Case == "gather-misses": // its baseline is what the link limits rows of these stored bytes to
			stored[x.RowBytes] = link * float64(x.RowBytes) / (x.BaselineValue * 1e9)
		}
	}
	compared := 0
	for _, x := range r.Results {
		if x.Case != "gather-80" || x.Codec == SparseCodec {
			continue
		}
		measured := float64(x.RowBytes) / (x.Value * 1e9) / (1 - gatherHits)
		cost := admission.GPUCost(x.RowBytes, link)
		off := cost.Miss(int(stored[x.RowBytes]))/measured - 1
		t.Logf("%d bytes, %.0f stored: %.1f ns, %+.0f %%", x.RowBytes, stored[x.RowBytes], 1e9*measured, 100*off)
		if math.Abs(off) > 0.15 {
			t.Errorf("%d bytes: a miss costs %+.0f %% of the measured %.1f ns", x.RowBytes, 100*off, 1e9*measured)
		}
		hits := measured * (1 - gatherHits) / gatherHits // they are read in less than all of the time
		if cost.Hit <= 0 || cost.Hit > hits {
			t.Errorf("%d bytes: a hit costs %g ns, all of the batch takes %g ns a hit", x.RowBytes, 1e9*cost.Hit, 1e9*hits)
		}
		compared++
	}
	if compared < 5 {
		t.Errorf("%d row lengths were compared, want 5", compared)
	}
}

// TestLink_PredictsOverflow compares the times by which targets are chosen with the pieces of host memory that a GPU has been measured with.
func TestLink_PredictsOverflow(t *testing.T) {
	t.Parallel()
	r, err := Parse(results.GPUBench)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, x := range r.Results {
		if x.Case != "buddy-overflow" || x.Variant != "" {
			continue
		}
		var share, bytes int
		var alone float64
		_, detail, _ := strings.Cut(x.Detail, " µs, ")
		for !strings.HasPrefix(detail, "10 %") && !strings.HasPrefix(detail, "30 %") {
			_, detail, _ = strings.Cut(detail, ", ")
			if detail == "" {
				t.Fatalf("%q must say the share of the rows", x.Detail)
			}
		}
		_, err := fmt.Sscanf(detail, "%d %% of the rows with %d bytes", &share, &bytes)
		_, places, _ := strings.Cut(detail, "overflow places alone ")
		_, err2 := fmt.Sscanf(places, "%f", &alone)
		if err != nil || err2 != nil {
			t.Fatalf("%q: %v, %v", x.Detail, err, err2)
		}
		predicted := 1e6 * float64(x.Batch*share/100) * buddy.HostLink(0).Seconds(bytes, bytes, x.TableBytes/int64(x.RowBytes))
		off := predicted/alone - 1
		t.Logf("%d B %s, %d pieces of %d B: measured %.1f µs, predicted %.1f, %+.1f %%", x.RowBytes, x.Codec, x.Batch*share/100, bytes, alone, predicted, 100*off)
		if off < -0.25 || off > 0.4 {
			t.Errorf("%d B %s, %d pieces of %d B: predicted %.1f µs, measured %.1f: %+.1f %% must be -25 to 40 %%", x.RowBytes, x.Codec, x.Batch*share/100, bytes, predicted, alone, 100*off)
		}
		compared++
	}
	if compared == 0 {
		t.Error("nothing was compared")
	}
}
