package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// fileOf writes an .npy file.
func fileOf(t *testing.T, name, of string, shape string, data []byte) string {
	t.Helper()
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", of, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, append(append(file, header...), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// floats writes a table of float32 whose columns differ in size; of sparse ones, few values are not 0.
func floats(t *testing.T, rows, columns int, sparse bool) string {
	r := rand.New(rand.NewPCG(1, uint64(rows)))
	data := make([]byte, 0, 4*rows*columns)
	for range rows {
		for j := range columns {
			x := float32(r.NormFloat64() * math.Exp(float64(j%7)-3))
			if sparse && r.IntN(50) > 0 {
				x = 0
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	return fileOf(t, "f.npy", "<f4", fmt.Sprintf("%d, %d", rows, columns), data)
}

// idFile writes row numbers.
func idFile(t *testing.T, ids []int64) string {
	data := make([]byte, 0, 8*len(ids))
	for _, row := range ids {
		data = binary.LittleEndian.AppendUint64(data, uint64(row))
	}
	return fileOf(t, "ids.npy", "<i8", fmt.Sprintf("%d,", len(ids)), data)
}

// skewed returns row numbers of which few are frequent. Which are, drifts by a row after so many lookups; 0: never.
func skewed(rows, n int, exponent float64, drift int) []int64 {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(n)))
	places := rand.New(rand.NewPCG(9, 9)).Perm(rows)
	ids := make([]int64, n)
	for i := range ids {
		at := int(float64(rows) * math.Pow(r.Float64(), exponent))
		if drift > 0 {
			at = (at + i/drift) % rows
		}
		ids[i] = int64(places[at])
	}
	return ids
}

// practice opens a cache as a program does that knows nothing of plans, trains it on the first part of the row numbers, and returns what it hits of the others. The files and their
// row numbers are those of a plan, which has divided them.
func practice(t *testing.T, c *PlanConfig, p *Plan, ids [][]int64, learned, batch int) float64 {
	t.Helper()
	o := cache.Options{Budget: p.BudgetBytes, Seed: 1, Refresh: c.Online.options(), Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: c.Devices}}
	for name := range strings.SplitSeq(c.Features, ",") {
		table, err := cache.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if c.resident() {
			table = table.Resident()
		}
		o.Tables = append(o.Tables, table)
	}
	spec, err := admission.Lookup(p.Policy)
	if err != nil {
		t.Fatal(err)
	}
	if o.Admission.Policy, err = spec.New(admission.Inputs{}); err != nil {
		t.Fatal(err)
	}
	o.Admission.Training = func(yield func(int, []int64) bool) {
		for i, rows := range ids {
			for part := range slices.Chunk(rows[:len(rows)*learned/len(ids[0])], batch) {
				if !yield(i, part) {
					return
				}
			}
		}
	}
	x, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	batches := 0
	for from := learned; from < len(ids[0]); from += batch {
		for i, rows := range ids {
			part := rows[len(rows)*from/len(ids[0]) : len(rows)*min(from+batch, len(ids[0]))/len(ids[0])]
			if err := x.Gather(context.Background(), cache.Request{Table: i, Rows: part, Out: make([]byte, len(part)*x.RowBytes(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if batches++; c.every() > 0 && batches%c.every() == 0 {
			if err := x.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := x.Stats()
	if err != nil {
		t.Fatal(err)
	}
	lookups, misses := int64(0), int64(0)
	for i := range s.Tables {
		lookups, misses = lookups+s.Tables[i].Lookups, misses+missedOf(&s.Tables[i])
	}
	return 1 - ratio(misses, lookups)
}

// comesTrue makes a plan and fails unless each of its caches hits what it says, by 2 points at most.
func comesTrue(t *testing.T, c PlanConfig, seen func(p *Plan) float64) *PlanResult {
	t.Helper()
	res, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Plans {
		p := &res.Plans[i]
		got := seen(p)
		t.Logf("%-8s %-8s %10d B for %.0f %%: planned %.2f %% (%.2f to %.2f), seen %.2f", p.Policy, p.ChosenCodec, p.BudgetBytes, 100*p.TargetHit, 100*p.PredictedHitRatio, 100*p.HitLow, 100*p.HitHigh, 100*got)
		if math.Abs(got-p.PredictedHitRatio) > 0.02 {
			t.Errorf("%s at %d B: planned %.2f %%, seen %.2f %%", p.Policy, p.BudgetBytes, 100*p.PredictedHitRatio, 100*got)
		}
		if p.Reached != (p.PredictedHitRatio >= p.TargetHit) || p.HitLow > p.PredictedHitRatio || p.HitHigh < p.PredictedHitRatio {
			t.Errorf("%+v", p)
		}
	}
	if res.Verdict == "" || len(res.Answers) != len(c.Targets) || res.Workload.Generated == nil && strings.Contains(res.Verdict, "invented") {
		t.Errorf("%+v", res)
	}
	return res
}

// replayed makes a plan of row numbers, one list for each table, come true.
func replayed(t *testing.T, c PlanConfig, files []string, ids ...[]int64) *PlanResult {
	t.Helper()
	var names []string
	for _, rows := range ids {
		names = append(names, idFile(t, rows))
	}
	c.Features, c.IDs, c.BatchSize = strings.Join(files, ","), strings.Join(names, ","), 2000
	learned := len(ids[0]) * learnShare / learnOf
	if len(ids) > 1 {
		learned = len(ids[0]) / 2000 * learnShare / learnOf * 2000
	}
	return comesTrue(t, c, func(p *Plan) float64 { return practice(t, &c, p, ids, learned, 2000) })
}

func TestMakePlan_ComesTrue(t *testing.T) {
	generatedComeTrue(t, 1, []string{"freq", "lru"}, "skewed", "drifting and refreshed", "tables", "in small", "later lookups", "resident")
}

// generatedComeTrue makes plans of generated lookups come true: of the named ones, all if none is named, so many times as large as the smallest.
func generatedComeTrue(t *testing.T, scale int, recency []string, names ...string) {
	c := NewPlanConfig()
	c.Targets = []float64{0.6}
	rows, few, lookups := 5_000*scale, 2_500*scale, 50_000*scale
	dense, sparse, wide := floats(t, rows, 32, false), floats(t, few, 128, true), floats(t, 5*rows, 16, false)
	for _, of := range []struct {
		name string
		run  func(t *testing.T, c PlanConfig)
	}{
		{"skewed", func(t *testing.T, c PlanConfig) {
			if c.Policies = recency; testing.Short() {
				c.Policies = recency[:1] // the next case has all
			}
			res := replayed(t, c, []string{dense}, skewed(rows, lookups, 3, 0))
			if res.Workload.TrainingLookups != int64(lookups*3/4) || res.Workload.Lookups != int64(lookups/4) || res.EnoughBytes < res.Answers[0].BudgetBytes || len(res.Curve) < 5 ||
				res.Answers[0].Codec != res.Plans[0].ChosenCodec {
				t.Errorf("%+v", res)
			}
			for i := range res.Curve[1:] {
				if a, b := res.Curve[i], res.Curve[i+1]; a.BudgetBytes >= b.BudgetBytes || a.HitRatio > b.HitRatio+0.02 {
					t.Errorf("%+v, then %+v", a, b)
				}
			}
		}},
		{"sparse", func(t *testing.T, c PlanConfig) { replayed(t, c, []string{sparse}, skewed(few, lookups/2, 2, 0)) }},
		{"drifting and refreshed", func(t *testing.T, c PlanConfig) {
			c.Policies, c.RefreshBatches = recency, 5
			replayed(t, c, []string{dense}, skewed(rows, lookups, 4, 20))
		}},
		{"drifting", func(t *testing.T, c PlanConfig) { replayed(t, c, []string{dense}, skewed(rows, lookups, 4, 20)) }},
		{"tables", func(t *testing.T, c PlanConfig) {
			replayed(t, c, []string{dense, sparse}, skewed(rows, lookups/2, 3, 0), skewed(few, lookups/4, 2, 0))
		}},
		{"devices", func(t *testing.T, c PlanConfig) {
			c.Devices = 2
			replayed(t, c, []string{dense}, skewed(rows, lookups, 3, 0))
		}},
		{"resident", func(t *testing.T, c PlanConfig) {
			c.Slots, c.Targets = AutoSlots, []float64{0.9}
			if res := replayed(t, c, []string{sparse}, skewed(few, lookups/4, 2, 0)); !res.Answers[0].Reached {
				t.Errorf("%+v", res.Answers)
			}
		}},
		// A miniature has a quarter of the rows.
		{"in small", func(t *testing.T, c PlanConfig) {
			c.planned, c.Targets = 5*rows/4, []float64{0.4, 0.7}
			if res := replayed(t, c, []string{wide}, skewed(5*rows, 3*lookups, 3, 0)); res.SampledRows != int64(c.planned) || res.Workload.Lookups != int64(lookups*3/4) {
				t.Errorf("%+v", res)
			}
		}},
		{"in small and refreshed", func(t *testing.T, c PlanConfig) {
			c.planned, c.RefreshBatches, c.Policies = 5*rows/4, 5, []string{"freq", "lru"}
			replayed(t, c, []string{wide}, skewed(5*rows, 3*lookups, 4, 20))
		}},
		// Whoever gives all row numbers that there are trains on them all later, and serves others.
		{"later lookups", func(t *testing.T, c PlanConfig) {
			all := skewed(few, lookups*3/4, 2, 0)
			c.Features, c.IDs = sparse, idFile(t, all[:lookups/2])
			comesTrue(t, c, func(p *Plan) float64 { return practice(t, &c, p, [][]int64{all}, lookups/2, 2000) })
		}},
	} {
		if len(names) == 0 || slices.Contains(names, of.name) {
			t.Run(of.name, func(t *testing.T) { of.run(t, c) })
		}
	}
}

// Batches that are sampled from graphs are those of run, which trains on others.
func TestMakePlan_RealGraphs(t *testing.T) {
	c := NewPlanConfig()
	c.Features = realdata.Table(t, "reddit.npz")
	c.Graph, c.Targets, c.Batches, c.TrainBatches = c.Features, []float64{0.6}, 40, 20
	sampled(t, c)
}

// sampled makes a plan of a workload of run come true.
func sampled(t *testing.T, c PlanConfig) {
	t.Helper()
	comesTrue(t, c, func(p *Plan) float64 {
		one := c.at(p.Policy, p.Codec)
		one.Device, one.Budget = "host", fmt.Sprint(p.BudgetBytes)
		r, err := Run(t.Context(), one, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Results.HitRatio
	})
}

// A plan says that its lookups are invented, unless a file has them, and what a given budget hits. Rows that are accessed once cannot hit when they come.
func TestMakePlan_Verdict(t *testing.T) {
	c := NewPlanConfig()
	c.Vertices, c.Batches, c.TrainBatches, c.BatchSize, c.Check = 3000, 16, 8, 32, true
	res, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(res.Verdict, "; of invented lookups, which say nothing about yours: give --ids") || res.Workload.Generated == nil || strings.Count(res.Verdict, " gives ") != 3 {
		t.Error(res.Verdict)
	}
	for _, a := range res.Answers {
		if a.SeenHit == nil || *a.SeenHit != a.HitRatio || !a.Reached {
			t.Errorf("%+v", a)
		}
	}
	c.AtBudget, c.Budget, c.Codecs = true, "20%", []string{"ibp4"} // not auto again, which takes longest
	at, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil {
		t.Fatal(err)
	}
	if a := at.Answers; len(a) != 1 || a[0].BudgetBytes != 3000*512/5 || a[0].HitRatio != *a[0].SeenHit || strings.Contains(at.Verdict, "nothing;") {
		t.Errorf("%+v: %s", a, at.Verdict)
	}
	c.AtBudget, c.Cold, c.Check, c.Targets = false, true, false, []float64{1}
	if res, err = MakePlan(t.Context(), c, Quiet{}); err != nil || res.Answers[0].Reached || !strings.HasPrefix(res.Verdict, "100 % is out of reach: ") || res.Workload.RefreshBatches != defaultRefreshBatches {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestMakePlan_GPUMemory(t *testing.T) {
	c := NewPlanConfig()
	c.Vertices, c.Batches, c.TrainBatches, c.BatchSize, c.Devices = 3000, 16, 8, 32, 2
	c.Policies, c.Codecs, c.Targets, c.GPUMemory = []string{"static-optimal", "freq"}, []string{"none"}, []float64{0.5}, scratchBytes+400<<10
	res, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range res.Plans {
		if p.GPU.BudgetBytes <= 0 || p.GPU.BudgetBytes >= 400<<10 || p.GPU.Fits != (p.BudgetBytes <= p.GPU.BudgetBytes) || (p.GPU.HitRatio >= p.PredictedHitRatio) != p.GPU.Fits {
			t.Errorf("%s: %+v of %+v", p.Policy, p.GPU, p)
		}
		if p.ReserveBytes < scratchBytes || p.TotalBytes != 2*(p.BudgetBytes+p.BesideBytes+p.ReserveBytes) || p.MetadataBytes+p.PayloadBytes > 2*p.BudgetBytes {
			t.Errorf("%s: bytes do not add up: %+v", p.Policy, p)
		}
		if r := p.Resident; r.Fits || r.Faster != "cached" || r.BudgetBytes < 3000*512/2 || !strings.Contains(r.Why, "does not fit") {
			t.Errorf("%+v", r)
		}
	}
	if len(res.Plans) != 2 || res.Plans[0].Policy != "static-optimal" || res.Batch != nil {
		t.Errorf("%+v", res)
	}
}

// TestPlan_BatchTimes: a plan's batch is predicted to take what the run of its budget is predicted to, and lies between the table on the GPU and none.
func TestPlan_BatchTimes(t *testing.T) {
	c := NewPlanConfig()
	c.Vertices, c.Batches, c.TrainBatches, c.BatchSize, c.Device = 3000, 6, 4, 64, "host"
	c.Policies, c.Codecs, c.Targets = []string{"static-freq"}, []string{"none", "ibp4"}, []float64{0.5}
	res, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil || res.Batch == nil || len(res.Plans) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, plan := range res.Plans {
		one := c.at(plan.Policy, plan.Codec)
		one.Budget = fmt.Sprint(plan.BudgetBytes)
		r, err := Run(t.Context(), one, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.PredictedBatchMS == nil || math.Abs(*plan.PredictedBatchMS/r.PredictedGPU.BatchMS-1) > 0.02 || res.Batch.UncachedMS != r.PredictedGPU.UncachedMS {
			t.Errorf("%s: planned %v and %+v, ran %+v", plan.Codec, plan.PredictedBatchMS, res.Batch, r.PredictedGPU)
		}
		if !(*plan.PredictedBatchMS > res.Batch.ResidentMS) {
			t.Errorf("%s: %v ms, %v with the whole table on the GPU", plan.Codec, *plan.PredictedBatchMS, res.Batch.ResidentMS)
		}
	}
}

// ngramPlan is of a text, for decode and prefill.
func ngramPlan(t *testing.T, tokens int, rows int64) PlanConfig {
	t.Helper()
	r := rand.New(rand.NewPCG(3, uint64(tokens)))
	var text []byte
	for range tokens {
		text = binary.LittleEndian.AppendUint16(text, uint16(40*r.Float64()*r.Float64()*r.Float64()))
	}
	c := NewPlanConfig()
	c.Workload, c.Tokens, c.Rows = ngramKind, fileOf(t, "text.npy", "<u2", fmt.Sprintf("%d,", tokens), text), rows
	c.Phases = []string{"decode:16", "prefill:200"}
	c.Policies, c.Codecs, c.Targets = []string{"static-freq"}, []string{"ibp4"}, []float64{0.4}
	return c
}

// TestMakePlan_InSmallTiers: what a plan says of a miniature is what it says of the whole table.
func TestMakePlan_InSmallTiers(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 4000, 24_000)
	c.GPUMemory = scratchBytes + 32*200*16 + 2<<20
	c.Tiers = TiersConfig{HostMemories: []string{"4MiB"}, Page: "4KiB", Cold: Drive{Reads: 80_000}}
	near := func(what string, got, want, share float64) {
		t.Logf("%s: %g, of all rows %g", what, got, want)
		if math.Abs(got-want) > share*math.Abs(want) {
			t.Errorf("%s: %g, of all rows %g", what, got, want)
		}
	}
	for _, order := range []string{"", "frequency"} {
		if testing.Short() && order == "" {
			continue
		}
		c.Tiers.Order, c.planned = order, 0
		all, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		c.planned = 8_000
		some, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if some.SampledRows < 7_500 || some.SampledRows > 8_000 || all.SampledRows != 0 || len(some.Phases) != 2 || some.Workload.Lookups != all.Workload.Lookups {
			t.Fatalf("%+v, of all rows %+v", some, all)
		}
		a, b := &some.Plans[0], &all.Plans[0]
		near("budget", float64(a.BudgetBytes), float64(b.BudgetBytes), 0.2)
		near("ratio", a.CompressionRatio, b.CompressionRatio, 0.01)
		near("hits of all memory", a.GPU.HitRatio, b.GPU.HitRatio, 0.05)
		near("resident", float64(a.Resident.BudgetBytes), float64(b.Resident.BudgetBytes), 0.05)
		for k := range a.Tiers {
			x, y := &a.Tiers[k], &b.Tiers[k]
			if x.Phase != []string{"decode", "prefill"}[k] {
				t.Errorf("tiers of phase %q", x.Phase)
			}
			near("host rows", float64(x.HostRows), float64(y.HostRows), 0.1)
			near("pages", x.PagesRead, y.PagesRead, 0.3)
			near("length of all pages", float64(x.PagesBytes), float64(y.PagesBytes), 0.1)
		}
		if a, b := some.Placements[0], all.Placements[0]; a.Choice != b.Choice || a.Choice == "" || len(a.Layouts) != 3 {
			t.Errorf("%+v, of all rows %+v", a, b)
		}
	}
}

// TestMakePlan_MoreThanThereIsMemoryFor: of 768 million rows a miniature is made. 203 GB fit no host memory of 32 GiB, and the index of 9.3 GB no host memory of 8 GiB.
func TestMakePlan_MoreThanThereIsMemoryFor(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 20_000, 768_000_000)
	c.GPUMemory, c.planned = 40<<30, 200_000
	c.Tiers = TiersConfig{HostMemories: []string{"32GiB"}, Page: "4KiB", Cold: Drive{Reads: 80_000, Latency: 100 * time.Microsecond}}
	res, err := MakePlan(t.Context(), c, Quiet{})
	if err != nil {
		t.Fatal(err)
	}
	if p := res.Placements[0]; p.Choice != TiersLayout || p.Layouts[0].Fits || p.Layouts[1].Fits || len(p.Layouts[2].Times) != 2 || p.Layouts[2].PageBytes < 100e9 {
		t.Errorf("%+v", p)
	}
	c.Tiers.HostMemories = []string{"8GiB"}
	if _, err := MakePlan(t.Context(), c, Quiet{}); err == nil {
		t.Error("an index that does not fit")
	}
	c.Check = true
	if _, err := MakePlan(t.Context(), c, Quiet{}); err == nil {
		t.Error("a check of rows that are not there")
	}
}

// TestMakePlan_Placement: a table that fits in device memory is resident, one that fits in host memory cached, and another one in tiers. Without a drive nothing is known of these.
func TestMakePlan_Placement(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 1000, 8000) // 2.11 MB
	const kept = scratchBytes + 32*200*16
	for _, of := range []struct {
		gpu    int64
		host   string
		drive  Drive
		choice string
	}{
		{kept + 4<<20, "8MiB", Drive{}, ResidentLayout}, {kept + 1<<20, "8MiB", Drive{}, CachedLayout}, {kept + 1<<20, "1MiB", Drive{Bandwidth: "1GB/s"}, TiersLayout},
		{kept + 1<<20, "1MiB", Drive{}, TiersLayout}, {kept, "1MiB", Drive{}, ""}, {kept + 1<<20, "", Drive{}, CachedLayout},
	} {
		c.GPUMemory, c.Tiers = of.gpu, TiersConfig{Cold: of.drive}
		if of.host != "" {
			c.Tiers.HostMemories, c.Tiers.Page = []string{of.host}, "4KiB"
		}
		res, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		p := res.Placements[0]
		if p.Choice != of.choice || p.Why == "" || len(p.Layouts) != 3 {
			t.Errorf("%d B of GPU memory, %s of host memory: %+v, want %s", of.gpu, of.host, p, of.choice)
		}
		for _, l := range p.Layouts {
			if l.Why == "" || l.Fits && l.Layout != TiersLayout && (len(l.Times) != 2 || l.Times[0].Phase != "decode" || !(l.Times[1].MS > l.Times[0].MS)) {
				t.Errorf("%+v", l)
			}
			if l.Layout == TiersLayout && l.Fits && (len(l.Times) > 0) != (of.drive.Known() || l.ColdRatio == 0) {
				t.Errorf("times of an unknown drive: %+v", l)
			}
		}
	}
	c.Devices = 2
	if res, err := MakePlan(t.Context(), c, Quiet{}); err != nil || res.Placements != nil || res.Phases != nil {
		t.Errorf("two devices: %+v, %v", res, err)
	}
}

// TestPlacement_Choose: of layouts that fit, the one whose batches take least, each phase counting as much.
func TestPlacement_Choose(t *testing.T) {
	t.Parallel()
	layout := func(name string, fits bool, ms ...float64) PlacedLayout {
		l := PlacedLayout{Layout: name, Fits: fits}
		for _, x := range ms {
			l.Times = append(l.Times, PlacedTime{MS: x})
		}
		return l
	}
	for want, layouts := range map[string][]PlacedLayout{
		"a": {layout("a", true, 1, 10), layout("b", true, 2, 9), layout("c", false, 0.1, 0.1)},
		"b": {layout("a", true, 1, 40), layout("b", true, 2, 9), layout("c", true)},
		"c": {layout("a", false, 1), layout("b", false, 2), layout("c", true)},
		"":  {layout("a", false, 1), layout("b", false, 2)},
	} {
		p := Placement{Layouts: layouts}
		p.choose(leastTimes([][]PlacedLayout{layouts}))
		if p.Choice != want || p.Why == "" {
			t.Errorf("%+v, want %q", p, want)
		}
	}
}
