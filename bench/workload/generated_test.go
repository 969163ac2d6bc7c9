package workload

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// generated returns a small workload of each kind that brings its own rows.
func generated(t testing.TB, seed uint64) map[string]Tabled {
	t.Helper()
	must := func(w Tabled, err error) Tabled {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	dlrm, err1 := NewDLRM(DLRMOptions{Tables: []EmbeddingTable{{5000, 1, 1}, {100, 0.5, 3}}, BatchSize: 200, Batches: 30, Turnover: 10, Seed: seed})
	mix, err3 := NewMix(MixOptions{Rows: 5000, Batches: 30, BatchSize: 1000, Seed: seed, Parts: []MixPart{
		{Zipf, 3, 0.9, 0}, {Uniform, 1, 0, 0}, {Scan, 2, 0, 0}, {Loop, 1, 0, 300}}})
	popularity, err4 := NewPopularity(PopularityOptions{
		Buckets: []int64{10, 100, 1000}, Weights: []float64{5, 3, 2}, LoneShare: 0.25, Sizes: []int64{10, 20, 40}, SizeWeights: []float64{3, 1},
		BatchSize: 1000, Batches: 30, Seed: seed,
	})
	hash, err5 := NewNgramHash(NgramHashOptions{Rows: 5000, Seed: seed})
	if err5 != nil {
		t.Fatal(err5)
	}
	text := SampleText([]int32{1, 2, 3, 1, 3, 2, 1, 1, 4, 5, 1, 2, 4, 1}, 900, seed)
	ngram, err5 := NewNgram(NgramOptions{Text: text, Hash: hash, BatchSize: 32})
	return map[string]Tabled{"ngram": must(ngram, err5), "dlrm": must(dlrm, err1), "mix": must(mix, err3), "popularity": must(popularity, err4)}
}

// TestGenerated_Deterministic: a batch depends on the seed and its number only; what dst held stays; rows are in range.
func TestGenerated_Deterministic(t *testing.T) {
	again, other := generated(t, 7), generated(t, 8)
	for name, w := range generated(t, 7) {
		if w.Kind() != name {
			t.Errorf("kind %q, want %q", w.Kind(), name)
		}
		c, d := w.NewCursor(), again[name].NewCursor()
		batches := make([][]int64, w.Batches())
		for i := range batches {
			batches[i] = c.Batch(i, []int64{-5})
			if batches[i][0] != -5 || len(batches[i]) < 2 {
				t.Fatalf("%s: batch %d is %v", name, i, batches[i])
			}
			for _, row := range batches[i][1:] {
				if row < 0 || row >= w.Rows() {
					t.Fatalf("%s: row %d of %d", name, row, w.Rows())
				}
			}
		}
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(batches)) {
			if got := d.Batch(i, nil); !slices.Equal(got, batches[i][1:]) {
				t.Errorf("%s: batch %d differs when asked for out of order", name, i)
			}
		}
		e := other[name].NewCursor()
		same := 0
		for i := range min(len(batches), other[name].Batches()) {
			if slices.Equal(e.Batch(i, nil), batches[i][1:]) {
				same++
			}
		}
		if same > len(batches)/4 {
			t.Errorf("%s: %d of %d batches are another seed's too", name, same, len(batches))
		}
		dst := make([]int64, 0, 1<<16)
		if n := testing.AllocsPerRun(10, func() { c.Batch(1, dst) }); n > 0 {
			t.Errorf("%s: %v allocations a batch", name, n)
		}
	}
}

// TestGenerated_Pinned: published results stay what they are.
func TestGenerated_Pinned(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the last bit of logarithms may differ")
	}
	for name, want := range map[string]uint64{"dlrm": 0x9478ffece44dd7c9, "mix": 0x6492359fd5b8f93c, "popularity": 0x437ad18d38510db8, "ngram": 0xb2c1716093f8b3da} {
		h := fnv.New64a()
		w := generated(t, 1)[name]
		c := w.NewCursor()
		for i := range w.Batches() {
			fmt.Fprint(h, c.Batch(i, nil))
		}
		if got := h.Sum64(); got != want {
			t.Errorf("%s of seed 1 hashes to %#x, want %#x: published results would change", name, got, want)
		}
	}
	g, err := PowerLaw(GraphOptions{Vertices: 1000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.SetWeights(1)
	h := fnv.New64a()
	fmt.Fprint(h, g.Indptr, g.Indices, g.Weights)
	if got, want := h.Sum64(), uint64(0x1cfcb7cc717241a0); got != want {
		t.Errorf("a weighted graph of seed 1 hashes to %#x, want %#x", got, want)
	}
}

// TestZipf_Probabilities: ranks are as frequent as the law says, for exponents below, at and above 1.
func TestZipf_Probabilities(t *testing.T) {
	race.SkipSequential(t)
	const draws = 400_000
	for _, s := range []float64{0, 0.5, 1, 1 + 1e-9, 1.2, 3} {
		for _, n := range []int64{1, 2, 1000} {
			z := newZipf(n, s)
			r := rand.NewPCG(1, uint64(n))
			counts := make([]int, n)
			for range draws {
				counts[z.draw(r)]++
			}
			sum := 0.0
			for k := range counts {
				sum += math.Pow(float64(k+1), -s)
			}
			for k, got := range counts {
				p := math.Pow(float64(k+1), -s) / sum
				if sigma := math.Sqrt(draws * p * (1 - p)); math.Abs(float64(got)-draws*p) > 5.5*sigma+4 { // 4: rare ranks are Poisson-like
					t.Errorf("s %g, n %d: rank %d drawn %d times, want %.0f ± %.0f", s, n, k+1, got, draws*p, sigma)
				}
			}
		}
	}
	z := newZipf(1<<50, 1)
	r := rand.NewPCG(1, 1)
	for range 1000 {
		if k := z.draw(r); k < 0 || k >= 1<<50 {
			t.Fatalf("rank %d", k)
		}
	}
}

// TestSampling_Weighted: pairs of neighbours are as frequent as drawing one after the other by weight has them.
func TestSampling_Weighted(t *testing.T) {
	weights := []float32{4, 1, 0, 2, 3, 0.5}
	g := &Graph{Indptr: []int64{0, 6, 6, 6, 6, 6, 6, 6}, Indices: []int32{1, 2, 3, 4, 5, 6}, Weights: weights}
	const batches = 7 * 40_000 // an epoch has one batch with vertex 0
	w, err := NewNeighborSampling(SamplingOptions{Graph: g, Fanouts: []int{2}, BatchSize: 1, Batches: batches, Weighted: true})
	if err != nil {
		t.Fatal(err)
	}
	c := w.NewCursor()
	pairs, total := map[[2]int64]int{}, 0
	for i := range batches {
		b := c.Batch(i, nil)
		if b[0] != 0 {
			continue
		}
		if len(b) != 3 {
			t.Fatalf("batch %v", b)
		}
		pairs[[2]int64{min(b[1], b[2]), max(b[1], b[2])}]++
		total++
	}
	const sum = 10.5
	for i := range weights {
		for j := range i {
			a, b := float64(weights[i]), float64(weights[j])
			p := a / sum * b / (sum - a)
			p += b / sum * a / (sum - b)
			got := float64(pairs[[2]int64{int64(j + 1), int64(i + 1)}])
			if sigma := math.Sqrt(float64(total) * p * (1 - p)); math.Abs(got-float64(total)*p) > 5*sigma {
				t.Errorf("edges %d and %d: %.0f times of %d, want %.0f ± %.0f", j, i, got, total, float64(total)*p, sigma)
			}
		}
	}
	if _, err := NewNeighborSampling(SamplingOptions{Graph: &Graph{Indptr: []int64{0, 0}}, Weighted: true}); err == nil ||
		err.Error() != "workload: sampling: Graph must have weights to be sampled by them" {
		t.Error(err)
	}
	for _, bad := range [][]float32{{1}, {1, 2, 3, 4, 5, -1}, {1, 2, 3, 4, 5, float32(math.NaN())}, {float32(math.Inf(1)), 2, 3, 4, 5, 6}} {
		h := *g
		if h.Weights = bad; h.Validate() == nil {
			t.Errorf("weights %v are taken", bad)
		}
	}
}

// TestSampling_WeightedHub: skipping over edges of a long list leaves each one its share.
func TestSampling_WeightedHub(t *testing.T) {
	const degree, batches = 2000, 20_000
	g := &Graph{Indptr: make([]int64, degree+2), Indices: make([]int32, degree), Weights: make([]float32, degree)}
	for v := range degree + 1 {
		g.Indptr[v+1] = degree
	}
	for i := range degree {
		g.Indices[i], g.Weights[i] = int32(i+1), 1
		if i%2 == 1 {
			g.Weights[i] = 3
		}
	}
	c := samplingCursor{w: &NeighborSampling{o: SamplingOptions{Graph: g, Weighted: true}}, seen: newStampSet(degree + 1)}
	heavy, tail := 0, 0
	for i := range batches {
		c.seen.clear()
		c.rng.Seed(1, uint64(i))
		b := c.appendWeighted(0, 5, nil)
		if len(b) != 5 {
			t.Fatalf("batch %v", b)
		}
		for _, v := range b {
			if v%2 == 0 {
				heavy++
			}
			if v > degree*9/10 {
				tail++
			}
		}
	}
	if share := float64(heavy) / (5 * batches); math.Abs(share-0.75) > 0.01 {
		t.Errorf("heavy edges have %.4f of the draws, want 0.75", share)
	}
	if share := float64(tail) / (5 * batches); math.Abs(share-0.1) > 0.01 {
		t.Errorf("the last tenth of the edges has %.4f of the draws", share)
	}
}

func TestLoadEdges(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	g, err := LoadGraph(file("a.txt", "# a comment\n% another\n2 0\n0\t1\r\n\n0, 3\n2 0\n0 0"), false)
	if err != nil || !slices.Equal(g.Indptr, []int64{0, 3, 3, 5, 5}) || !slices.Equal(g.Indices, []int32{1, 3, 0, 0, 0}) || g.Weights != nil {
		t.Errorf("%+v, %v", g, err)
	}
	g, err = LoadGraph(file("b.wel", "\xef\xbb\xbf1 0 0.5\n0 1 2\n1 1 0\n"), false)
	if err != nil || !slices.Equal(g.Indptr, []int64{0, 1, 3}) || !slices.Equal(g.Indices, []int32{1, 0, 1}) || !slices.Equal(g.Weights, []float32{2, 0.5, 0}) {
		t.Errorf("%+v, %v", g, err)
	}
	for text, want := range map[string]string{
		"":                    ": edges (0) must be at least 1",
		"# 1 2\n":             ": edges (0) must be at least 1",
		"1\n":                 ":1: fields (1) must be source, target and perhaps a weight",
		"1 2 3 4\n":           ":1: fields (4) must be source, target and perhaps a weight",
		"1 2\n1 -2\n":         `:2: vertex ("-2") must be 0 to 2147483646 in decimal digits`,
		"1 x\n":               `:1: vertex ("x") must be 0 to 2147483646 in decimal digits`,
		"1 2147483647\n":      `:1: vertex ("2147483647") must be 0 to 2147483646 in decimal digits`,
		"1 2 nan\n":           `:1: weight ("nan") must be finite and not negative`,
		"1 2 -1\n":            `:1: weight ("-1") must be finite and not negative`,
		"1 2 1\n1 2\n":        ":2: weights must be on all edges or none",
		"0 1\n1 2000000000\n": ": vertices (2000000001) must be at most 16777216 for 2 edges: renumber them",
		"2000000000 1\n":      ": vertices (2000000001) must be at most 16777216 for 1 edges: renumber them",
	} {
		path := file("bad.el", text)
		if _, err := LoadGraph(path, false); err == nil || err.Error() != "workload: graph "+path+want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzLoadEdges(f *testing.F) {
	f.Add([]byte("0 1\n2 0\n"))
	f.Add([]byte("0,1,0.5\n#\n1 1 3e3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x.el")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		g, err := LoadEdges(path, false)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "workload: graph "+path) {
				t.Error(err)
			}
			return
		}
		if err := g.Validate(); err != nil {
			t.Error(err)
		}
	})
}

// TestDLRM_Turnover: the hot rows of far batches are others, those of near ones mostly the same; without turnover all.
func TestDLRM_Turnover(t *testing.T) {
	hot := func(turnover, batch int) map[int64]bool {
		w, err := NewDLRM(DLRMOptions{Tables: []EmbeddingTable{{100_000, 1.2, 1}}, BatchSize: 20_000, Batches: 200, Turnover: turnover, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		counts, rows := map[int64]int{}, map[int64]bool{}
		for _, row := range w.NewCursor().Batch(batch, nil) {
			if counts[row]++; counts[row] == 20 {
				rows[row] = true
			}
		}
		return rows
	}
	for _, c := range []struct {
		turnover, batch int
		least, most     float64
	}{{0, 199, 0.7, 1}, {100, 10, 0.6, 0.95}, {100, 50, 0.2, 0.7}, {100, 199, 0, 0.1}} {
		before, after := hot(c.turnover, 0), hot(c.turnover, c.batch)
		common := 0
		for row := range before {
			if after[row] {
				common++
			}
		}
		if share := float64(common) / float64(len(before)); len(before) < 20 || share < c.least || share > c.most {
			t.Errorf("turnover %d: %d of %d hot rows are still hot in batch %d", c.turnover, common, len(before), c.batch)
		}
	}
}

// TestMix_Parts: shares are exact, scans and loops go on from batch to batch.
func TestMix_Parts(t *testing.T) {
	parts, err := ParseMix("loop:7=20%, scan=30%,zipf:0.9=0.5e2%")
	if err != nil || !slices.Equal(parts, []MixPart{{Loop, 20, 0, 7}, {Scan, 30, 0, 0}, {Zipf, 50, 0.9, 0}}) {
		t.Fatalf("%+v, %v", parts, err)
	}
	if _, err := ParseMix("scan=33.3%,uniform=33.3%,zipf=33.3%"); err != nil {
		t.Error(err)
	}
	w, err := NewMix(MixOptions{Rows: 50, Parts: parts, BatchSize: 10, Batches: 100})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.counts, []int64{2, 3, 5}) {
		t.Errorf("counts %v", w.counts)
	}
	c := w.NewCursor()
	next := [2]int64{}
	length := [2]int64{7, 50}
	for i := range 100 {
		for j, row := range c.Batch(i, nil) {
			if p := w.order[j]; p < 2 {
				if row != next[p] {
					t.Fatalf("batch %d, part %d: row %d, want %d", i, p, row, next[p])
				}
				next[p] = (next[p] + 1) % length[p]
			}
		}
	}
	for text, want := range map[string]string{
		"lru":                  `pattern ("lru") must be zipf, uniform, scan or loop`,
		"zipf:x":               `exponent ("x") must be a number`,
		"loop":                 `loop's length ("") must be a number: loop:10000`,
		"scan:3":               `scan must have no argument ("3")`,
		"scan=0":               `share ("0") of scan must be a number above 0`,
		"scan,uniform":         `scan must have a share, as all parts of several must: scan=50%`,
		"scan=1,uniform":       `uniform must have a share, as all parts of several must: uniform=50%`,
		"uniform,scan=20":      `uniform must have a share, as all parts of several must: uniform=50%`,
		"uniform=60%,scan=60%": `shares (uniform=60%,scan=60%) must sum to 100%, not 120%`,
		"uniform=60%,scan=40":  `shares (uniform=60%,scan=40) must be percentages all, or none`,
	} {
		if _, err := ParseMix(text); err == nil || err.Error() != "workload: mix: "+want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestPopularity_Buckets: buckets have their shares, rows of a bucket the same; lone rows occur once.
func TestPopularity_Buckets(t *testing.T) {
	w := generated(t, 3)["popularity"].(*Popularity)
	c := w.NewCursor()
	counts := make([]int, w.Rows())
	for i := range w.Batches() {
		for _, row := range c.Batch(i, nil) {
			counts[row]++
		}
	}
	if w.PopularRows() != 1110 || w.Rows() != 1110+30*250 {
		t.Errorf("%d popular rows of %d", w.PopularRows(), w.Rows())
	}
	for row := w.PopularRows(); row < w.Rows(); row++ {
		if counts[row] != 1 {
			t.Fatalf("lone row %d occurs %d times", row, counts[row])
		}
	}
	byCount := slices.Clone(counts[:1110])
	slices.Sort(byCount)
	slices.Reverse(byCount)
	const popular = 30 * 750
	for _, b := range []struct {
		from, to int
		share    float64
	}{{0, 10, 0.5}, {10, 110, 0.3}, {110, 1110, 0.2}} {
		sum := 0
		for _, n := range byCount[b.from:b.to] {
			sum += n
		}
		if math.Abs(float64(sum)-b.share*popular) > 6*math.Sqrt(b.share*popular) {
			t.Errorf("ranks %d to %d: %d lookups, want %.0f", b.from, b.to, sum, b.share*popular)
		}
	}
	long := 0
	for row := range w.Rows() {
		switch n := w.RowBytes(row); {
		case n < 10 || n >= 40:
			t.Fatalf("row of %d bytes", n)
		case n >= 20:
			long++
		}
	}
	if share := float64(long) / float64(w.Rows()); math.Abs(share-0.25) > 0.02 {
		t.Errorf("%.3f of the rows have 20 bytes and more", share)
	}
	small, err := NewPopularity(PopularityOptions{Buckets: []int64{10, 100, 1000}, Weights: []float64{5, 3, 2}, Rows: 111})
	if err != nil || small.Rows() != 111 {
		t.Errorf("%v, %v", small, err)
	}
	for i := range small.Batches() {
		for _, row := range small.NewCursor().Batch(i, nil) {
			if row < 0 || row >= 111 {
				t.Fatalf("row %d", row)
			}
		}
	}
}

func TestLoadPopularity(t *testing.T) {
	config := realdata.Trace(t, filepath.Join("cachelib_graph_cache_leader_fbobj", "config.json"))
	o, err := LoadPopularity(config)
	if err != nil || len(o.Buckets) != 296 || len(o.Weights) != 296 || len(o.Sizes) != 2674 || o.LoneShare != 0.2315436539873129 {
		t.Errorf("%d buckets, %d weights, %d sizes, lone %v, %v", len(o.Buckets), len(o.Weights), len(o.Sizes), o.LoneShare, err)
	}
	o.Batches = 3
	w, err := NewPopularity(o)
	if err != nil || w.PopularRows() != 27_564_687 {
		t.Errorf("%v, %v", w.PopularRows(), err)
	}
}

func TestGenerated_BadOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	for _, c := range []struct {
		f    func() error
		want string
	}{
		{func() error {
			_, err := NewDLRM(DLRMOptions{Tables: []EmbeddingTable{{0, -1, 0}}, BatchSize: -1, Turnover: -2})
			return err
		},
			"workload: DLRM: Tables[0].Rows (0) must be at least 1, of all tables at most 1125899906842624\nworkload: DLRM: BatchSize (-1) must be at least 1, a batch at most 2147483647 lookups\nworkload: DLRM: Turnover (-2) must not be negative"},
		{func() error { _, err := NewDLRM(DLRMOptions{Tables: []EmbeddingTable{{5, 11, -1}}}); return err },
			"workload: DLRM: Tables[0].Exponent (11) must be in [0, 10]\nworkload: DLRM: Tables[0].Lookups (-1) must be in [1, 1048576]"},
		{func() error {
			_, err := NewMix(MixOptions{Rows: 5, Parts: []MixPart{{Loop, 1, 0, 6}, {"x", 0, 0, 0}}})
			return err
		},
			"workload: mix: Parts[0].Length (6) must be in [1, 5], the rows\nworkload: mix: Parts[1].Share (0) must be above 0 and at most 1e9\nworkload: mix: Parts[1].Pattern (\"x\") must be zipf, uniform, scan or loop"},
		{func() error {
			_, err := NewPopularity(PopularityOptions{Buckets: []int64{1, 2}, Weights: []float64{1}})
			return err
		},
			"workload: popularity: Buckets (2) must be at least 1, and as many as Weights (1)"},
		{func() error {
			_, err := NewPopularity(PopularityOptions{Buckets: []int64{4}, Weights: []float64{0}, Rows: 5, LoneShare: 1})
			return err
		},
			"workload: popularity: Weights' sum (0) must be above 0 and at most 1e300\nworkload: popularity: Rows (5) must be in [1, 4], the sum of Buckets\nworkload: popularity: LoneShare (1) must be in [0, 1)"},
		{func() error { _, err := ParseTables("5:1:1:1"); return err }, `workload: DLRM: table ("5:1:1:1") must be rows:exponent:lookups`},
		{func() error { _, err := (&Spec{Kind: "x"}).New(); return err }, `workload: kind ("x") must be one of mix, dlrm, popularity, sampling, ngram`},
		{func() error { _, err := (&Spec{Kind: "mix", Rows: -1}).New(); return err }, "workload: mix: Rows (-1) must be in [1, 1125899906842624]"},
		{func() error { _, err := LoadPopularity(file); return err }, "workload: open " + file + ": no such file or directory"},
	} {
		if err := c.f(); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	for text, want := range map[string]string{
		`{}`:                 ": popularityBuckets and popularityWeights must be there",
		`[]`:                 ": must be a JSON object: json: cannot unmarshal array into Go value of type workload.cacheLibFile",
		`{"test_config":{}}`: ": test_config must name a popDistFile",
		`{"test_config":{"popDistFile":"x","setRatio":0.5}}`:    ": setRatio, delRatio and addChainedRatio (0.5, 0, 0) must be 0: workloads are lookups; name the popularity file itself to ignore them",
		`{"popularityBuckets":[1,0],"popularityWeights":[1,1]}`: ": workload: popularity: Buckets[1] (0) must be at least 1, their sum at most 1125899906842624",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadPopularity(file); err == nil || err.Error() != "workload: "+file+want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// BenchmarkBatch: rows a second of each workload.
func BenchmarkGenerated(b *testing.B) {
	for name, w := range generated(b, 1) {
		b.Run("workload="+name, func(b *testing.B) {
			c := w.NewCursor()
			var rows []int64
			n, i := 0, 0
			for b.Loop() {
				rows = c.Batch(i%w.Batches(), rows[:0])
				n += len(rows)
				i++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
