package buddy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// lengths returns stored lengths of classes of rows that follow each other: so many rows each, evenly from lo to hi bytes.
func lengths(r *rand.Rand, classes ...[3]int) (all []int32) {
	for _, c := range classes {
		for range c[0] {
			all = append(all, int32(c[1]+r.IntN(c[2]-c[1]+1)))
		}
	}
	return all
}

func layout(t *testing.T, rowBytes int, rows int64, devices int) Layout {
	t.Helper()
	l, err := NewLayout(MaxTarget(rowBytes), rowBytes, rows, devices)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestChooseParts_FindsClasses(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 50))
	type parts = []Part
	for name, c := range map[string]struct {
		stored   []int32
		devices  int
		rows     int64 // 0: those stored
		most     int64
		share    float64
		times    Times
		want     []Part
		overflow float64
	}{
		"one class":             {lengths(r, [3]int{64_000, 33, 64}), 1, 0, math.MaxInt64, Threshold, times, parts{{0, 64_000, 64}}, 0},
		"two classes":           {lengths(r, [3]int{32_000, 33, 64}, [3]int{32_000, 200, 208}), 1, 0, math.MaxInt64, Threshold, times, parts{{0, 32_000, 64}, {32_000, 64_000, 208}}, 0},
		"four devices":          {lengths(r, [3]int{32_000, 33, 64}, [3]int{32_000, 200, 208}), 4, 0, math.MaxInt64, Threshold, times, parts{{0, 8000, 64}, {8000, 16_000, 208}}, 0},
		"the long rows between": {lengths(r, [3]int{32_000, 33, 64}, [3]int{16_000, 256, 256}, [3]int{16_000, 33, 64}), 1, 0, math.MaxInt64, 0, times, parts{{0, 32_000, 64}, {32_000, 48_000, 256}, {48_000, 64_000, 64}}, 0},
		"little to be saved":    {lengths(r, [3]int{32_000, 233, 240}, [3]int{32_000, 250, 256}), 1, 0, math.MaxInt64, 0, times, parts{{0, 64_000, 256}}, 0},
		"few rows":              {lengths(r, [3]int{50, 33, 64}, [3]int{50, 256, 256}), 1, 0, math.MaxInt64, 0, times, parts{{0, 100, 256}}, 0},
		"mixed":                 {lengths(r, [3]int{64_000, 1, 256}), 1, 0, math.MaxInt64, 0, times, parts{{0, 64_000, 256}}, 0},
		// Overflow that one target may have, but not each of several.
		"the paper's choice": {slices.Concat(slices.Repeat([]int32{64}, 44_800), slices.Repeat([]int32{256}, 19_200)), 1, 0, math.MaxInt64, Threshold, Times{}, parts{{0, 64_000, 64}}, 0.3},
		"the paper's, of two classes": {slices.Concat(slices.Repeat([]int32{64, 64, 64, 96}, 8000), slices.Repeat([]int32{128, 128, 128, 256}, 8000)), 1, 0, math.MaxInt64, 0.25, Times{},
			parts{{0, 32_000, 64}, {32_000, 64_000, 128}}, 0.25},
		// One target of 160 bytes a row is too short for half of the rows.
		"fits in two only": {lengths(r, [3]int{32_000, 33, 64}, [3]int{32_000, 241, 256}), 1, 0, 64_000 * 160, Threshold, times, parts{{0, 32_000, 64}, {32_000, 64_000, 256}}, 0},
		"rows to come":     {lengths(r, [3]int{32_000, 33, 64}, [3]int{32_000, 241, 256}), 1, 96_000, math.MaxInt64, Threshold, times, parts{{0, 32_000, 64}, {32_000, 96_000, 256}}, 0},
	} {
		rows := max(c.rows, int64(len(c.stored)))
		got, ok := ChooseParts(layout(t, 256, rows, c.devices), c.stored, Limits{Bytes: c.most, Overflow: c.share}, c.times)
		if !ok || !slices.Equal(got.Parts, c.want) || math.Abs(got.Overflow-c.overflow) > 1e-9 {
			t.Errorf("%s: %+v, %v; want %v and %v of the rows longer", name, got, ok, c.want, c.overflow)
		}
	}
	if got, ok := ChooseParts(layout(t, 256, 100, 3), nil, Limits{Bytes: math.MaxInt64, Overflow: Threshold}, times); !ok || !slices.Equal(got.Parts, []Part{{0, 34, 256}}) {
		t.Errorf("no rows yet: %+v, %v", got, ok)
	}
	if got, ok := ChooseParts(layout(t, 256, 0, 3), nil, Limits{Bytes: 0, Overflow: Threshold}, times); !ok || !slices.Equal(got.Parts, []Part{{0, 0, 256}}) {
		t.Errorf("no rows ever: %+v, %v", got, ok)
	}
}

// What does not fit names what would: the same table fits when it has just as much, and not with a byte less.
func TestChooseParts_NamesTheLeastThatFits(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 51))
	for range 30 {
		stored := lengths(r, [3]int{100 + r.IntN(3000), 1, 1 + r.IntN(1000)}, [3]int{100 + r.IntN(3000), 500, 500 + r.IntN(500)})
		l := layout(t, 1000, int64(len(stored)), 1+r.IntN(3))
		least, ok := ChooseParts(l, stored, Limits{Bytes: 0, Overflow: Threshold}, times)
		if ok {
			t.Fatalf("nothing fits into no bytes: %+v", least)
		}
		bytes := least.SlotsBytes()
		if again, ok := ChooseParts(l, stored, Limits{Bytes: bytes, Overflow: Threshold}, times); !ok || again.SlotsBytes() > bytes {
			t.Fatalf("%+v, %v in %d bytes", again, ok, bytes)
		}
		if c, ok := ChooseParts(l, stored, Limits{Bytes: bytes - 1, Overflow: Threshold}, times); ok {
			t.Fatalf("%+v fits in %d bytes, and %+v was said to take least", c, bytes-1, least)
		}
	}
}

// Whatever is chosen is within the budget and the threshold, is what its lengths say, and is worth it; and no choice of one target is faster.
func TestChooseParts_KeepsTheTerms(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 52))
	several := 0
	for round := range 400 {
		rowBytes := 1 + r.IntN(2000)
		var classes [][3]int
		for range 1 + r.IntN(6) {
			lo := 1 + r.IntN(rowBytes)
			classes = append(classes, [3]int{1 + r.IntN(400), lo, lo + r.IntN(rowBytes-lo+1)})
		}
		stored := lengths(r, classes...)
		devices, share := 1+r.IntN(3), r.Float64()/2
		l := layout(t, rowBytes, int64(len(stored)+r.IntN(2)*r.IntN(500)), devices)
		local := l.LocalRows(0)
		most := int64(float64(local*int64(MaxTarget(rowBytes))) * (0.2 + r.Float64()))
		times := Times{times.Hit * math.Exp2(8*r.Float64()-2), times.Overflow}
		got, ok := ChooseParts(l, stored, Limits{Bytes: most, Overflow: share}, times)
		h := NewHistogram(rowBytes)
		for _, n := range stored {
			h.Add(int(n), 1)
		}
		one, fits := h.Choose(int(min(most/local, int64(MaxTarget(rowBytes)))), share, times)
		what := fmt.Sprintf("round %d: %+v, %v in %d bytes; one target: %+v, %v", round, got, ok, most, one, fits)
		if fits && !ok || ok && got.SlotsBytes() > most || got.Overflow > share+1e-9 || len(got.Parts) > 12 {
			t.Fatal(what)
		}
		at, over, seconds := int64(0), 0, 0.
		for _, p := range got.Parts {
			if p.From != at || p.To <= p.From || p.Target%MinTarget != 0 || p.Target < MinTarget || p.Target > MaxTarget(rowBytes) {
				t.Fatal(what)
			}
			at = p.To
			for row := p.From * int64(devices); row < min(int64(len(stored)), p.To*int64(devices)); row++ {
				if n := int(stored[row]); n > p.Target {
					over++
					seconds += times.Overflow(min((n+15)/16*16, rowBytes)-p.Target, Over(p.Target, rowBytes))
				}
			}
		}
		if at != local {
			t.Fatal(what)
		}
		if l.Rows == int64(len(stored)) {
			n := float64(len(stored))
			if math.Abs(got.Overflow-float64(over)/n) > 1e-9 || math.Abs(got.Seconds/max(times.Hit, seconds/n)-1) > 1e-6 {
				t.Fatalf("%s; by the lengths %d rows overflow, %v s", what, over, seconds/n)
			}
		}
		if !ok || !fits || len(got.Parts) == 1 {
			continue
		}
		several++
		if got.Seconds > slower*one.Seconds*(1+1e-9) || got.Seconds > (1-(1./MostParts))*one.Seconds && float64(got.SlotsBytes()) > (1-(1./MostParts))*float64(local*int64(one.Target)) {
			t.Fatal(what)
		}
	}
	if several < 50 {
		t.Errorf("several targets in %d of 400 rounds", several)
	}
}

// With less memory than all rows need, rows get what there is: half of the rows are raw, and the border moves into them.
func TestChooseParts_SpendsTheBudget(t *testing.T) {
	stored := slices.Concat(slices.Repeat([]int32{64}, 32_000), slices.Repeat([]int32{256}, 32_000))
	l := layout(t, 256, int64(len(stored)), 1)
	for most := 130; most < 160; most += 3 {
		c, ok := ChooseParts(l, stored, Limits{Bytes: int64(most * len(stored)), Overflow: Threshold}, times)
		// Each raw row in a short slot saves 192 bytes and costs 9.5 ns. A block is a 64th of the table.
		least := (160 - float64(most)) / 192 * 9.5e-9
		if !ok || c.Seconds < max(times.Hit, least*0.999) || c.Seconds > max(times.Hit, least)*1.01+9.5e-9/64 {
			t.Errorf("%d bytes a row: %+v, %v; want %v s", most, c, ok, least)
		}
	}
}

func BenchmarkChooseParts(b *testing.B) {
	r := rand.New(rand.NewPCG(22, 53))
	stored := lengths(r, [3]int{300_000, 1, 700}, [3]int{400_000, 100, 900}, [3]int{300_000, 300, 1024})
	l := Layout{Target: 16, RowBytes: 1024, Rows: int64(len(stored)), Devices: 1}
	for b.Loop() {
		ChooseParts(l, stored, Limits{Bytes: 500 << 20, Overflow: 0.1}, times)
	}
}

// Rows that become longer little by little have a few ranges, as one for each length would save little more.
func TestChooseParts_HasFewRanges(t *testing.T) {
	stored := make([]int32, 64_000)
	for i := range stored {
		stored[i] = int32(1 + i*256/len(stored))
	}
	c, ok := ChooseParts(layout(t, 256, int64(len(stored)), 1), stored, Limits{Bytes: math.MaxInt64}, Times{})
	if !ok || len(c.Parts) < 2 || len(c.Parts) > 4 || c.Target > 192 {
		t.Errorf("%+v, %v", c, ok)
	}
}
