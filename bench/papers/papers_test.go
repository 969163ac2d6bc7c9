package papers

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestReproduce_ZipNN holds the savings against the paper's method on the same data: within a point for whole models, within three for differences.
func TestReproduce_ZipNN(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a network; TestPacked_NearZipNN is the part of it without")
	}
	r, err := Reproduce(context.Background(), "zipnn", Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, c := range r.Claims {
		_, method, ok := strings.Cut(c.Data, "ZipNN's method saves ")
		if !ok {
			continue
		}
		ours, theirs := number(t, c.Measured), number(t, method)
		most := 1.0
		if strings.Contains(c.What, "apart") {
			most = 3
		}
		if ours < theirs-most || c.Verdict == Worse {
			t.Errorf("%s: %.1f %%, the method %.1f %%: %s", c.What, ours, theirs, c.Verdict)
		}
		held++
	}
	if held != 5 {
		t.Errorf("%d claims are held against the method", held)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	word, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPacked_NearZipNN(t *testing.T) {
	plain := normalWeights(1, 4)
	for of, data := range map[dtype.Type][]byte{dtype.Float32: plain, dtype.BFloat16: upper(plain)} {
		ours, err := packedBytes(of, data)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := zipnnBytes(data, of)
		if err != nil {
			t.Fatal(err)
		}
		if saved, method := saving(ours, data), saving(theirs, data); saved < method-1 || method < 10 {
			t.Errorf("%v: %.1f %%, ZipNN's method %.1f %%", of, saved, method)
		}
	}
}

// TestReproduce_WithoutData: tables that are not there are generated, and the claims say so.
func TestReproduce_WithoutData(t *testing.T) {
	r, err := Reproduce(context.Background(), "ndzip", Options{Data: t.TempDir(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Claims {
		if c.Verdict != NeedsGPU && !strings.Contains(c.Data, "generated in shape of") {
			t.Errorf("%+v", c)
		}
	}
	if _, err := Reproduce(context.Background(), "all", Options{Data: "/nowhere"}); err == nil {
		t.Error("a folder that is not there is taken")
	}
}
