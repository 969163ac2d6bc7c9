package workload

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNgramHash_Golden compares with values that were computed from the definition with integers of any length; the Python package has the same
// test. Lengths are the primes.
func TestNgramHash_Golden(t *testing.T) {
	b, err := os.ReadFile("testdata/ngram_hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Orders        []int
		Heads, Layers int
		Rows          int64
		Seed          uint64
		Tokens        []int32
		Lengths       []uint64
		IDs           [][]int64
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, c := range cases {
		h, err := NewNgramHash(NgramHashOptions{Orders: c.Orders, Heads: c.Heads, Layers: c.Layers, Rows: c.Rows, Seed: c.Seed})
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for g, want := range c.Lengths {
			if h.tables[g].length != want {
				t.Errorf("table %d has %d rows, want %d", g, h.tables[g].length, want)
			}
			sum += int64(want)
		}
		if h.Rows() != sum || h.Rows() > c.Rows || h.RowsPerToken() != len(c.Lengths) {
			t.Errorf("%d rows, %d a token", h.Rows(), h.RowsPerToken())
		}
		for i, want := range c.IDs {
			if got := h.Append([]int64{-1}, c.Tokens, i); got[0] != -1 || !slices.Equal(got[1:], want) {
				t.Errorf("orders %v, token %d: rows %v, want %v", c.Orders, i, got[1:], want)
			}
		}
	}
}

// TestNgramHash_Spreads: different n-grams fall on rows as if by chance.
func TestNgramHash_Spreads(t *testing.T) {
	h, err := NewNgramHash(NgramHashOptions{Orders: []int{2}, Heads: 2, Rows: 20_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var text []int32 // of pairs that are all different, as tokens in sequence and of a few values make them
	for a := range int32(100) {
		for b := range int32(100) {
			text = append(text, a, b)
		}
	}
	seen := map[int64]bool{}
	both := map[[2]int64]bool{}
	for i := 1; i < len(text); i += 2 {
		rows := h.Append(nil, text, i)
		seen[rows[0]] = true
		both[[2]int64(rows)] = true
	}
	length := float64(h.tables[0].length)
	want := length * (1 - math.Exp(-10_000/length))
	if math.Abs(float64(len(seen))-want) > 5*math.Sqrt(length) {
		t.Errorf("10,000 bigrams have %d rows in one table, want %.0f", len(seen), want)
	}
	if len(both) < 9_990 {
		t.Errorf("10,000 bigrams have %d pairs of rows", len(both))
	}
}

func TestNgramHash_BadInput(t *testing.T) {
	for want, o := range map[string]NgramHashOptions{
		"Orders (0) must be in [1, 8]":                {Orders: []int{0}},
		"Orders (9) must be in [1, 8]":                {Orders: []int{2, 9}},
		"Orders (2) must not have an order twice":     {Orders: []int{2, 2}},
		"Heads (257) must be in [1, 256]":             {Heads: 257},
		"Layers (-1) must be in [1, 1024]":            {Layers: -1},
		"Rows (-5) must be in":                        {Rows: -5},
		"Rows (16) must be more: 16 tables of 1 rows": {Rows: 16},
		"Rows (600) must be more: 16 tables of 37":    {Rows: 600}, // 12 primes up to 37
	} {
		if _, err := NewNgramHash(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestNgram_PhasesReadTheSame: prefill and decode of a part of a text look up the rows of each of its tokens once, with n-grams that reach back
// before the part.
func TestNgram_PhasesReadTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 1000)
	for i := range text {
		text[i] = r.Int32N(50)
	}
	h, err := NewNgramHash(NgramHashOptions{Heads: 2, Rows: 5000})
	if err != nil {
		t.Fatal(err)
	}
	var want []int64
	for i := 803; i < 997; i++ {
		want = h.Append(want, text, i)
	}
	sorted := slices.Sorted(slices.Values(want))
	for _, phase := range Phases {
		for _, size := range []int{1, 7, 30, 194, 5000} {
			w, err := NewNgram(NgramOptions{Text: text, From: 803, To: 997, Hash: h, Phase: phase, BatchSize: size})
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for i := range w.Batches() {
				before := len(got)
				got = w.NewCursor().Batch(i, got)
				if n := (len(got) - before) / 4; n == 0 || n > size || i < w.Batches()-1 && n < min(size, 194) {
					t.Errorf("%s of %d: batch %d has %d tokens", phase, size, i, n)
				}
			}
			if phase == Prefill && !slices.Equal(got, want) {
				t.Errorf("prefill of %d is not the text in order", size)
			}
			if slices.Sort(got); !slices.Equal(got, sorted) {
				t.Errorf("%s of %d looks up other rows", phase, size)
			}
		}
	}
	// Sequences go on token by token: of 194 tokens in 3 sequences, the first two have 65 and the last one 64.
	w, err := NewNgram(NgramOptions{Text: text, From: 803, To: 997, Hash: h, BatchSize: 3})
	if err != nil || w.Batches() != 65 {
		t.Fatal(w.Batches(), err)
	}
	if got := w.Batch(10, nil); !slices.Equal(got, h.Append(h.Append(h.Append(nil, text, 813), text, 878), text, 943)) {
		t.Errorf("batch 10: %v", got)
	}
	if got := w.Batch(64, nil); len(got) != 8 {
		t.Errorf("the last batch has %d rows", len(got))
	}
	if short, err := NewNgram(NgramOptions{Text: text, Hash: h, Batches: 2}); err != nil || short.Batches() != 2 {
		t.Errorf("%v, %v", short, err)
	}
}

func TestNgram_BadInput(t *testing.T) {
	h, err := NewNgramHash(NgramHashOptions{Rows: 5000})
	if err != nil {
		t.Fatal(err)
	}
	text := make([]int32, 10)
	for want, o := range map[string]NgramOptions{
		"tokens [0, 0) must be at least 1":        {Hash: h},
		"tokens [5, 5) must be at least 1":        {Text: text, Hash: h, From: 5, To: 5},
		"tokens [5, 11) must be at least 1":       {Text: text, Hash: h, From: 5, To: 11},
		`Phase ("chat") must be decode or prefil`: {Text: text, Hash: h, Phase: "chat"},
		"BatchSize (-1) must be":                  {Text: text, Hash: h, BatchSize: -1},
		"Batches (-1) must not be":                {Text: text, Hash: h, Batches: -1},
		"Hash must be given":                      {Text: text},
		"Rows (9) must be at least":               {Text: text, Hash: h, Rows: 9},
	} {
		if _, err := NewNgram(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestSampleText_HasTheBigrams: each pair of tokens is one of the text's, as often as there.
func TestSampleText_HasTheBigrams(t *testing.T) {
	text := []int32{7, 1, 2, 1, 2, 1, 3, 1, 9}
	counts := map[[2]int32]float64{{7, 1}: 1, {1, 2}: 2, {2, 1}: 2, {1, 3}: 1, {3, 1}: 1, {1, 9}: 1, {9, 7}: 1} // 9 ends the text, 7 begins it
	after := map[int32]float64{7: 1, 1: 4, 2: 2, 3: 1, 9: 1}
	const n = 100_000
	got := SampleText(text, n, 5)
	if len(got) != n || got[0] != 7 {
		t.Fatalf("%d tokens, the first %d", len(got), got[0])
	}
	pairs, single := map[[2]int32]float64{}, map[int32]float64{}
	for i := range got[1:] {
		pairs[[2]int32{got[i], got[i+1]}]++
		single[got[i]]++
	}
	for pair, n := range pairs {
		want := counts[pair] / after[pair[0]] * single[pair[0]]
		if counts[pair] == 0 || math.Abs(n-want) > 5*math.Sqrt(want) {
			t.Errorf("pair %v occurs %.0f times, want %.0f", pair, n, want)
		}
	}
	if !slices.Equal(got, SampleText(text, n, 5)) || slices.Equal(got, SampleText(text, n, 6)) {
		t.Error("the seed must fix the text")
	}
	if got := SampleText([]int32{4}, 3, 1); !slices.Equal(got, []int32{4, 4, 4}) {
		t.Errorf("of one token: %v", got)
	}
}

func TestLoadTokens(t *testing.T) {
	file := func(name, descr, data string) string {
		header := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }"
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header+data), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := LoadTokens(file("a.npy", "<u2", "\x01\x00\xff\xff\x03\x00")); err != nil || !slices.Equal(got, []int32{1, 65535, 3}) {
		t.Errorf("%v, %v", got, err)
	}
	for want, path := range map[string]string{
		"token 1 (-1) must be in [0, 16777215]":       file("b.npy", "<i2", "\x01\x00\xff\xff\x03\x00"),
		"token 2 (16777216) must be in [0, 16777215]": file("c.npy", "<i4", "\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x01"),
		"integer":      file("d.npy", "<f2", "\x01\x00\xff\xff\x03\x00"),
		"no such file": "missing.npy",
	} {
		if _, err := LoadTokens(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
