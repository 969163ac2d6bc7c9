package workload

import (
	"cmp"
	"fmt"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Pattern is how a part of a mix picks rows.
type Pattern string

// Patterns.
const (
	Zipf    Pattern = "zipf"    // by Zipf's law; the ranks are spread over the rows
	Uniform Pattern = "uniform" // each row equally likely
	Scan    Pattern = "scan"    // all rows in order, then again
	Loop    Pattern = "loop"    // the first Length rows in order, then again
)

// MixPart is one part of a mix.
type MixPart struct {
	Pattern Pattern
	// Share is the part's of all lookups, above 0; shares are relative to their sum.
	Share float64
	// Exponent is Zipf's, 0 to 10.
	Exponent float64
	// Length is the loop's, 1 to the rows.
	Length int64
}

// MixOptions describes a mix. The zero value is a Zipf workload.
type MixOptions struct {
	// Rows, at least 1. Default 1,000,000.
	Rows int64
	// Parts. Default: zipf with exponent 1.
	Parts []MixPart
	// BatchSize is the lookups of a batch, at least as many as there are parts. Default 4096.
	BatchSize int
	// Batches is at least 1. Default 200.
	Batches int
	// Seed fixes the lookups. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *MixOptions) EnsureDefaults() {
	o.Rows = cmp.Or(o.Rows, 1_000_000)
	if len(o.Parts) == 0 {
		o.Parts = []MixPart{{Pattern: Zipf, Share: 1, Exponent: 1}}
	}
	o.Parts = slices.Clone(o.Parts)
	o.BatchSize = cmp.Or(o.BatchSize, 4096)
	o.Batches = cmp.Or(o.Batches, 200)
}

// Validate reports every field out of range.
func (o *MixOptions) Validate() error {
	f := faults.List{Prefix: "workload: mix: "}
	f.If(o.Rows < 1 || o.Rows > maxRows, "Rows (%d) must be in [1, %d]", o.Rows, int64(maxRows))
	f.If(len(o.Parts) > maxParts, "Parts (%d) must be at most %d", len(o.Parts), maxParts)
	for i, p := range o.Parts {
		f.If(!(p.Share > 0 && p.Share <= 1e9), "Parts[%d].Share (%g) must be above 0 and at most 1e9", i, p.Share)
		switch p.Pattern {
		case Zipf:
			f.If(!(p.Exponent >= 0 && p.Exponent <= maxExponent), "Parts[%d].Exponent (%g) must be in [0, %d]", i, p.Exponent, maxExponent)
		case Loop:
			f.If(p.Length < 1 || p.Length > o.Rows, "Parts[%d].Length (%d) must be in [1, %d], the rows", i, p.Length, o.Rows)
		case Uniform, Scan:
		default:
			f.Addf("Parts[%d].Pattern (%q) must be zipf, uniform, scan or loop", i, p.Pattern)
		}
	}
	f.If(o.BatchSize < max(len(o.Parts), 1) || o.BatchSize > math.MaxInt32, "BatchSize (%d) must be in [%d, %d]", o.BatchSize, max(len(o.Parts), 1), math.MaxInt32)
	f.If(o.Batches < 1 || o.BatchSize > 0 && o.Batches > math.MaxInt/o.BatchSize, "Batches (%d) must be at least 1", o.Batches)
	return f.Err()
}

// ParseMix reads parts such as "zipf:0.9=70%,scan=20%,loop:10000=10%": a pattern, its exponent or length, its share. A single
// part needs no share. Percentages must sum to 100; shares without % count relative to each other.
func ParseMix(text string) ([]MixPart, error) {
	var parts []MixPart
	several, percent, percents := strings.Contains(text, ","), 0.0, 0
	for item := range strings.SplitSeq(text, ",") {
		name, share, shared := strings.Cut(strings.TrimSpace(item), "=")
		name, argument, argued := strings.Cut(name, ":")
		p := MixPart{Pattern: Pattern(strings.TrimSpace(name)), Share: 1}
		var err error
		if shared {
			if p.Share, err = strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(share), "%"), 64); err != nil || !(p.Share > 0) {
				return nil, fmt.Errorf("workload: mix: share (%q) of %s must be a number above 0", share, name)
			}
			if strings.HasSuffix(strings.TrimSpace(share), "%") {
				percent, percents = percent+p.Share, percents+1
			}
		}
		switch p.Pattern {
		case Zipf:
			p.Exponent = 1
			if argued {
				if p.Exponent, err = strconv.ParseFloat(argument, 64); err != nil {
					return nil, fmt.Errorf("workload: mix: exponent (%q) must be a number", argument)
				}
			}
		case Loop:
			if p.Length, err = strconv.ParseInt(argument, 10, 64); err != nil {
				return nil, fmt.Errorf("workload: mix: loop's length (%q) must be a number: loop:10000", argument)
			}
		case Uniform, Scan:
			if argued {
				return nil, fmt.Errorf("workload: mix: %s must have no argument (%q)", name, argument)
			}
		default:
			return nil, fmt.Errorf("workload: mix: pattern (%q) must be zipf, uniform, scan or loop", name)
		}
		if several && !shared {
			return nil, fmt.Errorf("workload: mix: %s must have a share, as all parts of several must: %s=50%%", name, name)
		}
		parts = append(parts, p)
	}
	switch {
	case percents > 0 && percents < len(parts):
		return nil, fmt.Errorf("workload: mix: shares (%s) must be percentages all, or none", text)
	case percents > 0 && math.Abs(percent-100) > 0.5: // three of 33.3% will do
		return nil, fmt.Errorf("workload: mix: shares (%s) must sum to 100%%, not %g%%", text, percent)
	}
	return parts, nil
}

// Mix is an access pattern of several parts. Every batch holds the same number of lookups of each, evenly interleaved.
type Mix struct {
	tabled
	o      MixOptions
	law    []zipf
	spread permutation
	order  []uint8 // which part each lookup of a batch belongs to
	counts []int64 // lookups of each part in a batch
}

// maxParts is what order can name.
const maxParts = 256

// NewMix checks the options and returns the workload.
func NewMix(o MixOptions) (*Mix, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Mix{tabled: tabled{"mix", o.Batches, o.Rows}, o: o, spread: newPermutation(int(o.Rows), o.Seed, 0), counts: make([]int64, len(o.Parts))}
	sum := 0.0
	for _, p := range o.Parts {
		w.law = append(w.law, newZipf(o.Rows, p.Exponent))
		sum += p.Share
	}
	// Each lookup goes to the part that is furthest behind its share.
	for j := range o.BatchSize {
		behind, most := 0, math.Inf(-1)
		for i, p := range o.Parts {
			if d := p.Share/sum*float64(j+1) - float64(w.counts[i]); d > most {
				behind, most = i, d
			}
		}
		w.counts[behind]++
		w.order = append(w.order, uint8(behind))
	}
	return w, nil
}

// NewCursor returns a cursor with scratch of 8 bytes a part.
func (w *Mix) NewCursor() Cursor { return &mixCursor{w: w, next: make([]int64, len(w.o.Parts))} }

type mixCursor struct {
	w    *Mix
	rng  rand.PCG
	next []int64 // place of each part's next lookup, if it goes in order
}

// Batch implements Cursor.
func (c *mixCursor) Batch(i int, dst []int64) []int64 {
	o := &c.w.o
	checkBatch(i, o.Batches)
	c.rng.Seed(streamSeeds(o.Seed, purposeMix, uint64(i)))
	for p := range o.Parts {
		c.next[p] = int64(i) * c.w.counts[p]
	}
	for _, p := range c.w.order {
		var row int64
		switch part := &o.Parts[p]; part.Pattern {
		case Zipf:
			row = int64(c.w.spread.at(int(c.w.law[p].draw(&c.rng))))
		case Uniform:
			row = int64(below(&c.rng, uint64(o.Rows)))
		case Scan:
			row = c.next[p] % o.Rows
		case Loop:
			row = c.next[p] % part.Length
		}
		c.next[p]++
		dst = append(dst, row)
	}
	return dst
}
