//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestRun_EveryCase runs all cases on tables so small that figures mean nothing: each gives results, whose outputs were compared
// with their sources, and says how long it took; and a few cases alone run what they need.
func TestRun_EveryCase(t *testing.T) {
	gputest.Require(t)
	tiny := Options{
		RowBytes: []int{256, 512}, TableBytes: 1 << 20, LargeTableBytes: 1 << 20, HostThreads: []int{2}, Batch: 500, Entries: 2000, Runs: 1,
		Log: t.Output(),
	}
	for _, cases := range [][]string{Cases, {"lookup"}, {"gather-80"}, {"caller"}, {"sampling"}} {
		o := tiny
		o.Cases = cases
		saves, first, last := 0, 0, 0 // how many cases were incomplete
		o.Save = func(r *Report) error {
			if last = len(r.Incomplete); saves == 0 {
				first = last
			}
			saves++
			return nil
		}
		report, err := Run(o)
		if err != nil {
			t.Fatalf("%v: %v", cases, err)
		}
		var have []string
		for _, x := range report.Results {
			if have = append(have, x.Case); !(x.Value >= 0) || x.GoalOf == RatioAtLeast && !(x.Ratio > 0) {
				t.Errorf("%+v", x)
			}
		}
		for _, s := range report.Skipped {
			have = append(have, s.Case)
		}
		for _, c := range Cases {
			if slices.Contains(have, c) != slices.Contains(cases, c) {
				t.Errorf("%v: there are results of %q, or none", cases, c)
			}
		}
		if len(report.Took) == 0 {
			t.Errorf("%v took no time", cases)
		}
		if err := Whole(report); err != nil || saves < len(report.Results) || first == 0 || last != 0 {
			t.Errorf("%v: %d saves, %d cases incomplete at first and %d at last, %v", cases, saves, first, last, err)
		}
	}
	o := tiny
	o.Cases = []string{"link", "lookup"}
	o.Save = func(*Report) error { return os.ErrPermission }
	if r, err := Run(o); !errors.Is(err, os.ErrPermission) || r == nil || len(r.Incomplete) == 0 {
		t.Errorf("a report that cannot be saved: %+v, %v", r, err)
	}
}

// TestRun_SomeCodecs: hit-codecs measures the codecs asked for, in all kinds of elements as far as they serve them, and the one for sparse rows in
// 0/1 rows.
func TestRun_SomeCodecs(t *testing.T) {
	gputest.Require(t)
	report, err := Run(Options{
		Cases: []string{"hit-codecs"}, Codecs: []string{"rank", "ibp2", "sparse"}, RowBytes: []int{256}, TableBytes: 1 << 20, Batch: 500, Runs: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, x := range report.Results {
		have = append(have, x.Codec)
	}
	if want := []string{"rank", "sparse", "rank" + BFloat16Suffix, "ibp2" + BFloat16Suffix, "sparse" + BFloat16Suffix, "rank" + Float16Suffix, "ibp2" + Float16Suffix, "sparse" + Float16Suffix, "sparse" + OnesSuffix}; !slices.Equal(have, want) {
		t.Errorf("measured %q, not %q", have, want)
	}
}

// TestRun_Parts: hit-parts measures rows of values and scales by the codec for rows of parts.
func TestRun_Parts(t *testing.T) {
	gputest.Require(t)
	report, err := Run(Options{Cases: []string{"hit-parts"}, Codecs: []string{"parts"}, TableBytes: 1 << 20, Batch: 100, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := Whole(report); err != nil || len(report.Results) != len(partsElements) {
		t.Fatalf("%d results, %v", len(report.Results), err)
	}
	for _, x := range report.Results {
		if x.Codec == "parts" && x.Compression < 1.1 || (x.Goal == 0.6) != (x.Codec == "parts") {
			t.Errorf("%+v", x)
		}
	}
}

// TestRun_Ngrams: ngram-decode and ngram-prefill measure a text and a longer one drawn from it, on every kind of host tier; a text that is too short is skipped.
func TestRun_Ngrams(t *testing.T) {
	gputest.Require(t)
	text := func(tokens int) string {
		header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", tokens)
		b := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", header)
		random := rand.New(rand.NewPCG(1, 1))
		for range tokens {
			b = append(b, byte(random.ExpFloat64()*10))
		}
		path := filepath.Join(t.TempDir(), "text.npy")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := Options{Cases: ngramCases, Tokens: text(1000), LargeTableBytes: 8 << 20, Batch: 4, Runs: 1, Log: t.Output()}
	report, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, x := range report.Results {
		have[x.Codec]++
		if !(x.Value > 0) || !(x.Ratio > 0) || x.RowBytes != 264 || strings.HasPrefix(x.Codec, "parts") && x.Compression < 1.1 {
			t.Errorf("%+v", x)
		}
	}
	for _, tier := range []string{"ibp4", "none", "parts", "parts packed", "ibp4, drawn text", "parts, drawn text"} {
		// Decode and prefill; the same and hits as bfloat16.
		if have[tier] != 2 || have[tier+", hits"] != 1 || have[tier+", hits, bfloat16"] != 1 || have[tier+", bfloat16"] != 1 {
			t.Errorf("results of %s: %v", tier, have)
		}
	}
	if err := Whole(report); err != nil {
		t.Error(err)
	}
	o.Tokens, o.Batch = text(99), 20
	report, err = Run(o)
	if err != nil || len(report.Skipped) != 2 || !strings.Contains(report.Skipped[0].Reason, "must be at least 200: a fifth of them is measured") {
		t.Errorf("a short text: %v, %+v", err, report)
	}
}

// TestRunner_FailedCases: a case that fails is incomplete, with those that are measured by the way, and the run goes on.
func TestRunner_FailedCases(t *testing.T) {
	d := gputest.Open(t)
	stream, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var log strings.Builder
	r := &runner{o: Options{Log: &log}, stream: stream}
	for _, c := range []string{"lookup", "small-batch", "caller"} {
		r.report.Incomplete = append(r.report.Incomplete, Skipped{Case: c, Reason: cutOff})
	}
	if err := try(func() {
		r.measure("small-batch", func() { must(errors.New("it broke")) })
		r.finish("small-batch", "caller")
		r.finish("lookup")
	}); err != nil {
		t.Fatal(err)
	}
	if want := []Skipped{{Case: "small-batch", Reason: "small-batch: it broke"}, {Case: "caller", Reason: "small-batch: it broke"}}; !slices.Equal(r.report.Incomplete, want) {
		t.Errorf("%+v, want %+v", r.report.Incomplete, want)
	}
	if len(r.failed) != 1 || !strings.Contains(log.String(), "FAILED: small-batch: it broke") {
		t.Errorf("%v; %s", r.failed, log.String())
	}
	if err := try(func() { r.measure(setup, func() { must(os.ErrClosed) }) }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("without what all use: %v", err)
	}
}
