package registry

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
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
		if c.Skipped == "" && (c.Ratio < 1 || c.HitRatio <= 0 || c.HitGBPerSecond <= 0 || c.DecodeGBPerSecond <= 0) {
			t.Errorf("candidate %+v", c)
		}
		if i > 0 && c.HitGBPerSecond > first.Candidates[i-1].HitGBPerSecond {
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
	// Metadata of the budget's size leave nothing to cache: only codecs without are left.
	got, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: 1000})
	if err != nil || got != nil && got.MetadataBytes() != 0 {
		t.Errorf("1000 bytes: %s, %s, %v", choice.Codec, choice.Reason, err)
	}
}

// TestPick_HitRatioOfTerms: what the terms say of hits is what is weighed, of the rows that fit.
func TestPick_HitRatioOfTerms(t *testing.T) {
	sample := normal(1000, 256)
	for name, law := range map[string]func(rows float64) float64{
		"uniform": func(rows float64) float64 { return rows / (1 << 20) },
		"none":    func(float64) float64 { return 0 },
	} {
		_, choice, err := Pick(sample, 256, dtype.Float32, Terms{Rows: 1 << 20, Budget: 16 << 20, HitRatio: law})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range choice.Candidates {
			if c.Skipped != "" {
				continue
			}
			fit := float64(16<<20-c.MetadataBytes) / (256/c.Ratio + entryBytes)
			if want := law(fit); math.Abs(c.HitRatio-want) > 0.05*want {
				t.Errorf("%s: %s: %v of the lookups, want %v", name, c.Codec, c.HitRatio, want)
			}
		}
		if want := "by the training batches"; !strings.Contains(choice.Basis, want) {
			t.Errorf("%s: %s, want %q in it", name, choice.Basis, want)
		}
	}
}

// TestReason_Words pins the sentences for people.
func TestReason_Words(t *testing.T) {
	plain := Candidate{Codec: None, Ratio: 1, HitRatio: 0.3, DecodeGBPerSecond: 1900, HitGBPerSecond: 30}
	small := Candidate{Codec: "zipnn", Ratio: 1.25, HitRatio: 0.35, DecodeGBPerSecond: 1577, HitGBPerSecond: 33}
	quick := Candidate{Codec: "rank", Ratio: 1.2, HitRatio: 0.34, DecodeGBPerSecond: 1691, HitGBPerSecond: 32.9}
	out := Candidate{Codec: "ibp2", Skipped: "no row shrinks"}
	for _, c := range []struct {
		candidates []Candidate
		best       int
		link       float64
		want       string
	}{
		{[]Candidate{plain, out}, 0, DefaultLink, "no codec is predicted to deliver more hits than rows as they are"},
		{[]Candidate{plain, {Codec: "rank", Ratio: 1.01, HitGBPerSecond: 27, DecodeGBPerSecond: 1691}}, 0, DefaultLink,
			"no codec is predicted to deliver more hits than rows as they are; rank, the next, is predicted to deliver 10.0 % less"},
		{[]Candidate{small, plain}, 0, DefaultLink,
			"its rows take 20.0 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 0.83 of the speed of a copy; none, the next, is predicted to deliver 9.1 % less"},
		{[]Candidate{small, quick, plain}, 1, DefaultLink,
			"its rows take 16.7 % fewer bytes, so more of them fit and misses move less; a GPU decodes them at 0.89 of the speed of a copy; zipnn, predicted to deliver 0.3 % more, counts as equal and decodes slower"},
		{[]Candidate{{Codec: "rank", Ratio: 2, HitGBPerSecond: 1, DecodeGBPerSecond: 0.51}}, 0, NoLink,
			"its rows take 50.0 % fewer bytes, so more of them fit and misses move less; a core here decodes 0.51 GB/s"},
	} {
		if got := reason(c.candidates, c.best, Terms{Link: c.link}); got != c.want {
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
			if x.Skipped == "" && x.DecodeGBPerSecond <= 0 {
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
		{Codec: "sleek", Skipped: "no row shrinks", HitGBPerSecond: 1.05}, {Codec: "ibp4", Ratio: 1.2, HitGBPerSecond: 1.04, DecodeGBPerSecond: 1},
		{Codec: None, Ratio: 1, HitGBPerSecond: 1, DecodeGBPerSecond: 9},
	}
	if best := choose(all); all[best].Codec != "ibp4" {
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
