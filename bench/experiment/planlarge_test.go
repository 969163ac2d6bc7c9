package experiment

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/sim"
	"github.com/tensorcache/tensorcache/pages"
)

// textOf writes a text of so many tokens, small ones more often, and returns its path.
func textOf(t *testing.T, tokens int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(3, uint64(tokens)))
	header := fmt.Sprintf("{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }", tokens)
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	file = append(file, header...)
	for range tokens {
		file = binary.LittleEndian.AppendUint16(file, uint16(40*r.Float64()*r.Float64()*r.Float64()))
	}
	path := filepath.Join(t.TempDir(), "text.npy")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ngramPlan is of a text, for decode and prefill.
func ngramPlan(t *testing.T, tokens int, rows int64) PlanConfig {
	c := NewPlanConfig()
	c.Workload, c.Tokens, c.Rows, c.Device = ngramKind, textOf(t, tokens), rows, "host"
	c.Phases = []string{"decode:64", "prefill:200"}
	c.Policies, c.Codecs, c.Target = []string{"static-freq"}, []string{"ibp4"}, 0.4
	return c
}

func TestLooked_NumbersRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	const n = 1000
	var rows []int64
	for range 300 {
		rows = append(rows, r.Int64N(n))
	}
	batches := func(yield func(int, []int64) bool) { _ = yield(0, rows[:100]) && yield(0, rows[100:]) }
	l, err := lookedUp(t.Context(), n, batches)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Compact(slices.Sorted(slices.Values(rows)))
	if l.n != int64(len(want)) {
		t.Fatalf("%d rows, want %d", l.n, len(want))
	}
	for i, row := range l.rows {
		if row != want[i] || l.index(row) != i {
			t.Fatalf("row %d has number %d, place %d has row %d", row, l.index(row), i, row)
		}
	}
}

// TestMakePlan_SampledIsExact: a plan that has seen some rows only, and counts those only that are looked up, is the plan that has seen all, but for what their lengths differ.
func TestMakePlan_SampledIsExact(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 2000, 12_000)
	c.GPUMemory = scratchBytes + 32*200*16 + 1<<20
	c.Tiers = TiersConfig{HostMemories: []string{"2MiB"}, Page: "4KiB", Cold: sim.Drive{Reads: 80_000}}
	near := func(what string, got, want, share float64) {
		if math.Abs(got-want) > share*math.Abs(want) {
			t.Errorf("%s: %g, of all rows %g", what, got, want)
		}
	}
	for _, order := range []string{"", "frequency"} {
		c.Tiers.Order, c.planned = order, 0
		if c.Policies = []string{"static-freq", "freq"}; order != "" {
			c.Policies = c.Policies[:1]
		}
		all, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		c.planned = 1
		some, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if some.SampledRows != sampledRows || all.SampledRows != 0 || some.Workload != all.Workload || len(some.Plans) != len(c.Policies) || len(some.Phases) != 2 {
			t.Fatalf("%+v, of all rows %+v", some, all)
		}
		for i := range some.Plans {
			a, b := &some.Plans[i], &all.Plans[i]
			near("hits", a.PredictedHitRatio, b.PredictedHitRatio, 0.01)
			near("rows", float64(a.Rows), float64(b.Rows), 0.03)
			near("budget", float64(a.BudgetBytes), float64(b.BudgetBytes), 0.03)
			near("ratio", a.CompressionRatio, b.CompressionRatio, 0.01)
			near("hits of all memory", a.GPU.HitRatio, b.GPU.HitRatio, 0.02)
			for k := range a.PhaseMS {
				near("batch", a.PhaseMS[k], b.PhaseMS[k], 0.02)
			}
			near("resident", float64(a.Resident.BudgetBytes), float64(b.Resident.BudgetBytes), 0.03)
			for k := range a.Tiers {
				x, y := &a.Tiers[k], &b.Tiers[k]
				if x.Phase != []string{"decode", "prefill"}[k] {
					t.Errorf("tiers of phase %q", x.Phase)
				}
				near("host rows", float64(x.HostRows), float64(y.HostRows), 0.05)
				near("pages", x.PagesRead, y.PagesRead, 0.1)
				near("length of all pages", float64(x.PagesBytes), float64(y.PagesBytes), 0.02)
			}
		}
		if a, b := some.Placements[0], all.Placements[0]; a.Choice != b.Choice || a.Choice == "" || len(a.Layouts) != 3 {
			t.Errorf("%+v, of all rows %+v", a, b)
		}
	}
	c.Check = true
	if _, err := MakePlan(t.Context(), c, Quiet{}); err == nil {
		t.Error("a check of rows that are not there")
	}
}

// TestMakePlan_MoreThanThereIsMemoryFor: of 768 million rows only those are generated that say how long rows are. 203 GB fit no host memory of 32 GiB, and the index of 9.3 GB no host
// memory of 8 GiB.
func TestMakePlan_MoreThanThereIsMemoryFor(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 300, 768_000_000)
	c.GPUMemory = 40 << 30
	c.Tiers = TiersConfig{HostMemories: []string{"32GiB"}, Page: "4KiB", Cold: sim.Drive{Reads: 80_000, Latency: 100 * time.Microsecond}}
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
}

// TestMakePlan_Placement: a table that fits in device memory is resident, one that fits in host memory cached, and another one in tiers. Without a drive nothing is known of these.
func TestMakePlan_Placement(t *testing.T) {
	t.Parallel()
	c := ngramPlan(t, 1000, 8000) // 2.11 MB
	const kept = scratchBytes + 32*200*16
	for _, of := range []struct {
		gpu    int64
		host   string
		drive  sim.Drive
		choice string
	}{
		{kept + 4<<20, "8MiB", sim.Drive{}, ResidentLayout}, {kept + 1<<20, "8MiB", sim.Drive{}, CachedLayout}, {kept + 1<<20, "1MiB", sim.Drive{Bandwidth: "1GB/s"}, TiersLayout},
		{kept + 1<<20, "1MiB", sim.Drive{}, TiersLayout}, {kept, "1MiB", sim.Drive{}, ""}, {kept + 1<<20, "", sim.Drive{}, CachedLayout},
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

// TestDrive_Measured compares reading times with those of two tables on the drives of an H200 (docs/tiers.md, docs/ngram.md): 0.76 of the 109,000 reads a second that a plain reader of
// 4 KiB pages has, and 1.03 of 1.29 GB/s at 64 KiB. Rows that are known 20 ms ahead wait so much less.
func TestDrive_Measured(t *testing.T) {
	t.Parallel()
	short, long := sim.Drive{Reads: 0.76 * 109_000, Latency: 100 * time.Microsecond}, sim.Drive{Bandwidth: "1.33GB/s", Latency: time.Millisecond}
	for _, of := range []struct {
		d                           sim.Drive
		pages, bytes                float64
		measured, lead, least, most float64 // ms, and the bounds of predicted ÷ measured
	}{
		{short, 3250, 4096, 38.6, 0, 0.95, 1.1}, {short, 3250, 4096, 34.1, 5, 0.95, 1.1}, {short, 3250, 4096, 18.7, 20, 0.95, 1.1}, {short, 9720, 4096, 110, 0, 0.9, 1.1},
		{long, 3724, 64 << 10, 223, 0, 0.8, 1},
	} {
		ms := 1e3*of.d.Seconds(of.pages*of.bytes, of.pages) + 0.11 - of.lead
		if share := ms / of.measured; share < of.least || share > of.most {
			t.Errorf("%.0f pages, known %g ms ahead: predicted %.1f ms, measured %.1f", of.pages, of.lead, ms, of.measured)
		}
	}
}

func TestInFront_IsOrderOf(t *testing.T) {
	t.Parallel()
	listed := []int64{7, 2, 9, 0}
	at, err := inFront(listed)
	if err != nil {
		t.Fatal(err)
	}
	order, _ := pages.OrderOf(listed, 12)
	for position, row := range order {
		if at(int64(row)) != int64(position) {
			t.Errorf("row %d at %d, want %d", row, at(int64(row)), position)
		}
	}
	if _, err := inFront([]int64{3, 1, 3}); err == nil {
		t.Error("a row that is listed twice")
	}
}
