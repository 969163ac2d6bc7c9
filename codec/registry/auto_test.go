package registry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

// normal returns rows of N(0,1) float32.
func normal(rows, rowBytes int) []byte {
	r := rand.New(rand.NewPCG(7, 7))
	var b []byte
	for range rows * rowBytes / 4 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64())))
	}
	return b
}

// TestPick_SameTermsSameChoice: what GPUs are to decode is chosen by the sample alone, and explained.
func TestPick_SameTermsSameChoice(t *testing.T) {
	sample := normal(1000, 256)
	var first Choice
	for i := range 3 {
		c, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if c == nil || c.Name() != choice.Codec || choice.Reason == "" {
			t.Fatalf("picked %v, choice %+v", c, choice)
		}
		if i == 0 {
			first = choice
		} else if fmt.Sprint(first) != fmt.Sprint(choice) {
			t.Fatalf("%+v, at first %+v", choice, first)
		}
	}
	for i, c := range first.Candidates {
		if c.Skipped == "" && (c.Ratio < 1 || c.HitRatio <= 0 || c.BatchMicroseconds <= 0 || c.HitNanoseconds <= 0 || c.MissNanoseconds <= 0 || c.Measured) {
			t.Errorf("candidate %+v", c)
		}
		if b := first.Candidates[max(0, i-1)]; c.Skipped == "" && (b.Skipped != "" || c.BatchMicroseconds < b.BatchMicroseconds) {
			t.Errorf("%s comes after %s", c.Codec, first.Candidates[i-1].Codec)
		}
		if c.Codec == "ibp2" && c.Skipped == "" {
			t.Error("ibp2 was tried on float32")
		}
	}
	if n := len(first.Candidates); n != len(Concrete())+1 {
		t.Errorf("%d candidates, want %d and none", n, len(Concrete()))
	}
}

// TestPick_WeighsHitsAndMisses: where the link is the limit the ratio decides; where all rows are cached, how fast they decode does.
func TestPick_WeighsHitsAndMisses(t *testing.T) {
	sample := normal(1000, 256)
	table := int64(1 << 20 * 256)
	for _, c := range []struct {
		name   string
		budget int64
		want   func(c codec.Codec) bool
	}{
		{"a tenth cached", table / 10, func(c codec.Codec) bool { return c != nil }},
		{"all cached", 2 * table, func(c codec.Codec) bool { return c == nil }},
	} {
		got, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: c.budget})
		if err != nil {
			t.Fatal(err)
		}
		if !c.want(got) {
			t.Errorf("%s: %s, %s", c.name, choice.Codec, choice.Reason)
		}
	}
	// Metadata are not of the budget, but codecs with as much are passed over.
	_, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if skipped := fmt.Sprint(choice.Candidates); !strings.Contains(skipped, "its metadata (1408 bytes) are as long as the budget") || strings.Contains(skipped, "its metadata (512 bytes)") {
		t.Error(skipped)
	}
	// Rows as they are can always be chosen, and codecs without metadata.
	if _, choice, err = Pick(sample, 256, dtype.Float32, Terms{Rows: 3, Budget: 5, Devices: 7}); err != nil || choice.Candidates[0].Skipped != "" {
		t.Errorf("5 bytes: %+v, %v", choice, err)
	}
}

// TestPick_ResidentRanges: codecs of a resident table are judged by ranges of rows with a target each, as the table will have them: rows that shrink followed by
// as many that do not fit where, mixed, they would not.
func TestPick_ResidentRanges(t *testing.T) {
	const rows, rowBytes = 8192, 256
	r := rand.New(rand.NewPCG(7, 9))
	sample := make([]byte, rows*rowBytes)
	for i := range sample[len(sample)/2:] {
		sample[len(sample)/2+i] = byte(r.Uint32())
	}
	terms := Terms{Rows: 1 << 20, Budget: 1 << 20 * rowBytes * 7 / 10, Resident: 0.3}
	judged := func() Candidate {
		t.Helper()
		c, choice, err := Pick(sample, rowBytes, dtype.Float32, terms)
		if err != nil || c == nil && !choice.Candidates[0].Unfit { // where none fits, all may need slots of one length
			t.Fatalf("%v, %+v", err, choice)
		}
		for _, k := range choice.Candidates { // uncompressed rows do not fit: nothing is said of how long they take
			if k.Codec == None && (!k.Unfit || k.BatchMicroseconds != 0) || k.Unfit && strings.HasSuffix(choice.Reason, " longer with "+k.Codec+", the next") {
				t.Errorf("%+v: %s", k, choice.Reason)
			}
		}
		return choice.Candidates[slices.IndexFunc(choice.Candidates, func(c Candidate) bool { return c.Codec == choice.Codec })]
	}
	if c := judged(); c.HitRatio < 0.95 || c.Unfit {
		t.Errorf("one half behind the other: %+v", c)
	}
	r.Shuffle(rows, func(i, j int) {
		a, b := sample[i*rowBytes:][:rowBytes], sample[j*rowBytes:][:rowBytes]
		for k := range a {
			a[k], b[k] = b[k], a[k]
		}
	})
	if c := judged(); c.HitRatio != 0 || !c.Unfit || c.BatchMicroseconds != 0 || c.MissNanoseconds != 0 {
		t.Errorf("both halves mixed: %+v", c)
	}
}

// lengths are stored lengths of rows of 256 bytes.
func lengths(n ...int) (encoded [][]byte) {
	for _, n := range n {
		encoded = append(encoded, make([]byte, n))
	}
	return encoded
}

// TestFill_CachesByLookups: rows are cached in the order of how often they are looked up, each with a slot of its own length.
func TestFill_CachesByLookups(t *testing.T) {
	drawn := []Drawn{{Row: 1, Rows: 10, Count: 1, Lookups: 0.2}, {Row: 2, Rows: 10, Count: 5, Lookups: 0.5}, {Row: 3, Rows: 80, Lookups: 0.3}}
	for _, c := range []struct {
		budget    float64
		hits, len float64
	}{
		{0, 0, 0.2*100 + 0.5*256 + 0.3*256},
		{10 * 276, 0.5, (0.2*100 + 0.3*256) / 0.5}, // the second draw, which is looked up most, though it is long
		{10*276 + 10*132, 0.7, 256},                // the first as well, of which a slot has 112 bytes
		{10*276 + 5*132, 0.6, (0.1*100 + 0.3*256) / 0.4},
		{10*276 + 10*132 + 40*276, 0.85, 256}, // half of those that training does not know
		{1e6, 1, 204},
	} {
		hits, length := fill(drawn, lengths(100, 256, 256), c.budget, 20, func(stored int) float64 { return float64(stored) })
		if math.Abs(hits-c.hits) > 1e-9 || math.Abs(length-c.len) > 1e-9 {
			t.Errorf("%v bytes: %v of the lookups hit, misses of %v bytes, want %v and %v", c.budget, hits, length, c.hits, c.len)
		}
	}
}

// TestPick_DrawnRows: what the terms say of lookups is what is weighed, of the rows that fit.
func TestPick_DrawnRows(t *testing.T) {
	const rows = 1000
	sample := normal(rows, 256)
	var uniform, hot []Drawn
	for i := range int64(rows) {
		uniform = append(uniform, Drawn{Row: i, Rows: 1 << 10, Count: 1, Lookups: 1.0 / rows})
	}
	hot = append(hot, Drawn{Row: 1, Rows: 10, Count: 9, Lookups: 1})
	for i := int64(2); i < rows; i++ {
		hot = append(hot, Drawn{Row: i, Rows: 1 << 10})
	}
	for name, drawn := range map[string][]Drawn{"uniform": uniform, "hot": hot} {
		_, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: rows << 10, Budget: 16 << 20, Batch: 5000, Drawn: drawn, Read: func(rows []int64) ([]byte, error) {
			return codec.Gather(sample, rows, 256, 256), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range choice.Candidates {
			if c.Skipped != "" {
				continue
			}
			bits := 2.0
			if c.Codec == None {
				bits = 1
			}
			fit := (16<<20 - bits*float64(rows<<7)) / (256/c.Ratio + entryBytes)
			want := fit / (rows << 10)
			if name == "hot" {
				want = 1
			}
			if math.Abs(c.HitRatio-want) > 0.05*want {
				t.Errorf("%s: %s: %v of the lookups, want %v", name, c.Codec, c.HitRatio, want)
			}
		}
		if want := "by the training batches, batches of 5000 rows"; !strings.Contains(choice.Basis, want) {
			t.Errorf("%s: %s, want %q in it", name, choice.Basis, want)
		}
	}
}

// TestPick_SparseRows: of rows of few ones, which several codecs store in a twentieth or less, the codec by which all fit is picked.
func TestPick_SparseRows(t *testing.T) {
	const rows, rowBytes = 2000, 4096
	r := rand.New(rand.NewPCG(7, 8))
	sample := make([]byte, rows*rowBytes)
	for row := range rows {
		for range 1 + r.IntN(20) {
			binary.LittleEndian.PutUint32(sample[row*rowBytes+4*r.IntN(rowBytes/4):], math.Float32bits(1))
		}
	}
	_, choice, err := Pick(sample, rowBytes, dtype.Float32, Terms{Rows: 40_000, Budget: 40_000 * rowBytes / 50, Batch: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	if best := choice.Candidates[0]; choice.Codec != "sparse" || best.HitRatio < 1 {
		t.Errorf("%s is picked, of which %.0f %% of the lookups hit: %s", best.Codec, 100*best.HitRatio, choice.Reason)
	}
}

// TestCosts_Seconds: of decoding all rows and reading misses the longer counts, beside what launches and lookups take; a processor does one after the other.
func TestCosts_Seconds(t *testing.T) {
	c := Costs{Batch: 5, Lookup: 0.5, Hit: 2, Miss: 30, MissByte: 1}
	for _, x := range []struct {
		hits, bytes, want float64
	}{
		{1, 0, 5 + 5 + 20}, {0.5, 100, 5 + 5 + 500}, {0.5, 10, 5 + 5 + 150}, {0.99, 10, 5 + 5 + 20},
	} {
		if got := c.Seconds(10, x.hits, x.bytes); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%+v: %v", x, got)
		}
	}
	c.Serial = true
	if got := c.Seconds(10, 0.5, 100); got != 5+5+10+500 {
		t.Errorf("in series: %v", got)
	}
	for _, bad := range []Costs{{}, {Hit: 1}, {Hit: -1, Miss: 1}, {Hit: 1, Miss: math.NaN()}, {Hit: 1, Miss: 1e4}, {Batch: math.Inf(1), Hit: 1, Miss: 1}} {
		if bad.Valid() {
			t.Errorf("%+v is valid", bad)
		}
	}
	if !c.Valid() {
		t.Errorf("%+v is not valid", c)
	}
}

// TestPick_MeasuredCosts: a batch's time by the measured costs decides: hits, misses by the row and by the byte. A pick of before stands
// unless another is 3 % faster.
func TestPick_MeasuredCosts(t *testing.T) {
	sample := normal(1500, 256)
	same := Costs{Batch: 1e-5, Lookup: 1e-10, Hit: 1e-9, Miss: 1e-9, MissByte: 1e-10}
	with := func(change func(*Costs)) Costs {
		c := same
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		costs  map[string]Costs // of those that differ from same
		before string
		want   string
	}{
		{"a codec that decodes slower than misses arrive", map[string]Costs{"rank": with(func(c *Costs) { c.Miss = 1e-7 }), "zipnn": with(func(c *Costs) { c.Miss = 1e-7 }), "sleek": with(func(c *Costs) { c.Hit = 1e-6 }),
			"ibp8": with(func(c *Costs) { c.Batch = 1 }), "ibpc": with(func(c *Costs) { c.Lookup = 1 }), "ndzip": with(func(c *Costs) { c.MissByte = 1e-8 }),
			"sparse": with(func(c *Costs) { c.Miss = 1e-7 })}, "", "ibp4"},
		{"misses by the row: hits decide, and nothing saves", map[string]Costs{None: with(func(c *Costs) { c.Miss, c.MissByte = 1e-9, 1e-13 })}, "", None},
		{"the fastest", map[string]Costs{"rank": with(func(c *Costs) { c.MissByte *= 0.85 }), None: with(func(c *Costs) { c.MissByte *= 0.7 })}, "", "rank"},
		{"that of before", map[string]Costs{"rank": with(func(c *Costs) { c.MissByte *= 0.85 }), None: with(func(c *Costs) { c.MissByte *= 0.7 })}, None, None},
	} {
		var asked []string
		_, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Measure: func(codecs []Trained, _ float64) (Measured, error) {
			m := Measured{Costs: map[string]Costs{}, Pick: c.before, Seconds: 0.25, By: "as a test says"}
			for _, k := range codecs {
				asked = append(asked, k.Name)
				if m.Costs[k.Name] = same; c.costs[k.Name] != (Costs{}) {
					m.Costs[k.Name] = c.costs[k.Name]
				}
				if k.Ratio < 1 || len(k.Rows) == 0 || (k.Codec == nil) != (k.Name == None) {
					t.Errorf("%s: asked for %s with %d rows", c.name, k.Name, len(k.Rows))
				}
			}
			return m, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if choice.Codec != c.want {
			t.Errorf("%s: %s, want %s: %s\n%+v", c.name, choice.Codec, c.want, choice.Reason, choice.Candidates)
		}
		if !strings.HasSuffix(choice.Basis, "as a test says") || choice.MeasuredSeconds != 0.25 || !slices.Contains(asked, None) || !slices.Contains(asked, "ibp4") {
			t.Errorf("%s: %+v, measured %s", c.name, choice, asked)
		}
		for _, k := range choice.Candidates {
			if k.Skipped == "" && k.Measured != slices.Contains(asked, k.Codec) {
				t.Errorf("%s: %+v", c.name, k)
			}
		}
	}
	// Nothing measured: the committed figures stand, and the choice says why.
	_, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Measure: func([]Trained, float64) (Measured, error) { return Measured{By: "(too slow)"}, nil }})
	if err != nil || !strings.HasSuffix(choice.Basis, "as measured on an H200 (too slow)") || choice.Candidates[0].Measured {
		t.Errorf("%+v, %v", choice, err)
	}
	failure := errors.New("the device is lost")
	if _, _, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Measure: func([]Trained, float64) (Measured, error) { return Measured{}, failure }}); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	// Small tables are not worth it.
	if _, _, err := Pick(sample[:256<<10], 256, dtype.Float32, Terms{Measure: func([]Trained, float64) (Measured, error) { return Measured{}, failure }}); err != nil {
		t.Error(err)
	}
}

// TestChoose_PickOfBeforeStands unless another is 3 % faster, though that one would be chosen at first.
func TestChoose_PickOfBeforeStands(t *testing.T) {
	for _, c := range []struct {
		micros float64 // of rank, whose rival takes 100
		before string
		want   string
	}{
		{102, "", "ibp4"}, {102, "rank", "rank"}, {103.05, "rank", "rank"}, {103.2, "rank", "ibp4"}, {98, "ibp4", "ibp4"}, {96.9, "ibp4", "rank"}, {98, "gone", "rank"},
		{98, "zipnn", "rank"},
	} {
		all := []Candidate{{Codec: "ibp4", Ratio: 1.1, BatchMicroseconds: 100}, {Codec: "rank", Ratio: 1.2, BatchMicroseconds: c.micros}, {Codec: "zipnn", Skipped: "no row shrinks"}}
		if got := all[choose(all, c.before)].Codec; got != c.want {
			t.Errorf("%v: %s, want %s", c, got, c.want)
		}
	}
	// One that was not measured is not chosen where others were.
	all := []Candidate{{Codec: "ndzip", Ratio: 2, BatchMicroseconds: 1}, {Codec: "ibp4", Ratio: 1.1, BatchMicroseconds: 100, Measured: true}}
	if got := all[choose(all, "")].Codec; got != "ibp4" {
		t.Errorf("%s was chosen, want ibp4", got)
	}
}

// TestReason_Words pins the sentences for people.
func TestReason_Words(t *testing.T) {
	plain := Candidate{Codec: None, Ratio: 1, HitNanoseconds: 0.135, BatchMicroseconds: 110}
	small := Candidate{Codec: "zipnn", Ratio: 1.25, HitNanoseconds: 0.16, BatchMicroseconds: 100}
	quick := Candidate{Codec: "rank", Ratio: 1.2, HitNanoseconds: 0.15, BatchMicroseconds: 100.3}
	out := Candidate{Codec: "ibp2", Skipped: "no row shrinks"}
	for _, c := range []struct {
		candidates []Candidate
		best       int
		before     string
		link       float64
		want       string
	}{
		{[]Candidate{plain, out}, 0, "", DefaultLink, "no codec is predicted to make batches faster than rows as they are"},
		{[]Candidate{plain, {Codec: "rank", Ratio: 1.01, BatchMicroseconds: 121}}, 0, "", DefaultLink,
			"no codec is predicted to make batches faster than rows as they are; batches take 10.0 % longer with rank, the next"},
		{[]Candidate{small, plain}, 0, "", DefaultLink,
			"its rows take 20.0 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 1600 GB/s; batches take 10.0 % longer with none, the next"},
		{[]Candidate{small, quick, plain}, 1, "", DefaultLink,
			"its rows take 16.7 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 1707 GB/s; zipnn, predicted to take 0.3 % less, counts as equal and decodes slower"},
		{[]Candidate{small, quick, plain}, 1, "rank", DefaultLink,
			"its rows take 16.7 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 1707 GB/s; it was picked before, and zipnn takes only 0.3 % less"},
		{[]Candidate{small, plain}, 1, None, DefaultLink, "rows as they are were picked before, and zipnn takes only 9.1 % less"},
		// A codec that was not measured is not picked, so it is not compared with.
		{[]Candidate{{Codec: "ndzip", Ratio: 2, HitNanoseconds: 1, BatchMicroseconds: 99}, {Codec: "zipnn", Ratio: 1.25, HitNanoseconds: 0.16, BatchMicroseconds: 100, Measured: true},
			{Codec: None, Ratio: 1, BatchMicroseconds: 110, Measured: true}}, 1, "", DefaultLink,
			"its rows take 20.0 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 1600 GB/s; batches take 10.0 % longer with none, the next"},
		{[]Candidate{{Codec: "rank", Ratio: 2, HitNanoseconds: 500, BatchMicroseconds: 1}}, 0, "", NoLink,
			"its rows take 50.0 % fewer bytes, so more of them fit and misses move less; a core here decodes 0.51 GB/s"},
	} {
		if got := reason(c.candidates, c.best, 256, c.before, Terms{Link: c.link}); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestPick_NoLink measures: what hardly shrinks is not worth decoding, zeros are.
func TestPick_NoLink(t *testing.T) {
	for name, sample := range map[string][]byte{"noise": normal(500, 256), "zeros": make([]byte, 256*500)} {
		c, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: 1 << 22, Link: NoLink})
		if err != nil {
			t.Fatal(err)
		}
		if name == "noise" && c != nil {
			t.Errorf("%s: %s, %s", name, choice.Codec, choice.Reason)
		}
		for _, x := range choice.Candidates {
			if x.Skipped == "" && (x.HitNanoseconds <= 0 || !x.Measured) {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
}

func TestPick_BadSamples(t *testing.T) {
	for _, c := range []struct {
		sample, row int
		want        string
	}{
		{0, 8, "codec: sample (0 bytes) must be a positive multiple of the row (8 bytes)"},
		{12, 8, "codec: sample (12 bytes) must be a positive multiple of the row (8 bytes)"},
		{8, 0, "codec: row (0 bytes) must be 1 to 1048575"},
		{1 << 20, 1 << 20, "codec: row (1048576 bytes) must be 1 to 1048575"},
	} {
		if _, _, err := Pick(make([]byte, c.sample), c.row, dtype.Uint8, Terms{}); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestPick_NothingShrinks keeps rows as they are.
func TestPick_NothingShrinks(t *testing.T) {
	noise := make([]byte, 64*300)
	rand.NewChaCha8([32]byte{3}).Read(noise)
	c, choice, err := Pick(noise, 64, dtype.Uint8, Terms{})
	if err != nil || c != nil || choice.Codec != None {
		t.Fatalf("%v, %+v, %v", c, choice, err)
	}
}

// TestPick_AsksTrainFirst: what a device can train is not trained here, and an error of it ends the search.
func TestPick_AsksTrainFirst(t *testing.T) {
	sample := bytes.Repeat([]byte("rows that repeat themselves."), 100)
	asked := map[string]bool{}
	_, _, err := Pick(sample, 28, dtype.Float32, Terms{Train: func(f codec.Family) (codec.Codec, bool, error) {
		asked[f.Name] = true
		return nil, false, nil
	}})
	if err != nil || !asked["ibp4"] || !asked["ibpc"] || asked["ibp"] {
		t.Fatalf("asked for %v, %v", asked, err)
	}
	failure := fmt.Errorf("the device is lost")
	_, _, err = Pick(sample, 28, dtype.Float32, Terms{Train: func(codec.Family) (codec.Codec, bool, error) { return nil, false, failure }})
	if err == nil {
		t.Fatal("no error")
	}
}

// TestChoose_PassesOverSkipped: what is passed over is no measure for the others.
func TestChoose_PassesOverSkipped(t *testing.T) {
	all := []Candidate{
		{Codec: "sleek", Skipped: "no row shrinks", BatchMicroseconds: 0.95}, {Codec: "ibp4", Ratio: 1.2, BatchMicroseconds: 0.96, HitNanoseconds: 9},
		{Codec: None, Ratio: 1, BatchMicroseconds: 1, HitNanoseconds: 1},
	}
	if best := choose(all, ""); all[best].Codec != "ibp4" {
		t.Errorf("%s, want ibp4", all[best].Codec)
	}
	// Rows that no codec shrinks are no candidate's but none's.
	noise := make([]byte, 64*300)
	rand.NewChaCha8([32]byte{3}).Read(noise)
	_, choice, err := Pick(noise, 64, dtype.Uint8, Terms{Link: NoLink})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range choice.Candidates {
		if c.Codec != None && (c.Skipped == "") != (c.Ratio > 1) {
			t.Errorf("%+v", c)
		}
	}
}

// TestPick_SmallTable: a few rows of a small table are trained on, and what they pick saves nearly what all rows would.
func TestPick_SmallTable(t *testing.T) {
	const rows = 2000
	bits := make([]byte, 0, rows*64) // rows of 16 counters, of which the upper bits are the same
	r := rand.New(rand.NewPCG(3, 3))
	for range rows * 16 {
		bits = binary.LittleEndian.AppendUint32(bits, 1<<20|r.Uint32N(1<<12))
	}
	for name, c := range map[string]struct {
		sample   []byte
		rowBytes int
		of       dtype.Type
	}{"normal 64": {normal(rows, 64), 64, dtype.Float32}, "normal 256": {normal(rows, 256), 256, dtype.Float32}, "counters": {bits, 64, dtype.Uint32}} {
		size := int64(len(c.sample))
		trained, choice, err := Pick(c.sample, c.rowBytes, c.of, Terms{Rows: rows, Budget: size / 4})
		if err != nil {
			t.Fatal(err)
		}
		_, all, err := Pick(c.sample, c.rowBytes, c.of, Terms{Rows: rows << 20, Budget: size << 20 / 4})
		if err != nil {
			t.Fatal(err)
		}
		if (trained == nil) != (all.Codec == None) {
			t.Fatalf("%s: %s was picked, %s of all rows", name, choice.Codec, all.Codec)
		}
		encoded, err := encodeAll(trained, c.sample, c.rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		stored := 0
		for _, row := range encoded {
			stored += len(row)
		}
		if ratio := float64(size) / float64(stored); ratio < 0.97*all.Candidates[0].Ratio {
			t.Errorf("%s: %s stores rows at a ratio of %.3f, %s of all rows at %.3f", name, choice.Codec, ratio, all.Codec, all.Candidates[0].Ratio)
		} else {
			t.Logf("%s: %s %.3f, %s %.3f", name, choice.Codec, ratio, all.Codec, all.Candidates[0].Ratio)
		}
	}
}
