package drive

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// TextConfig says which steps of a language model's server look up n-gram rows. A step's row numbers are known for a while, the lead, before its rows
// are needed.
type TextConfig struct {
	workload.NgramSpec
	// Steps is how many steps are measured with each lead, at most all of the last fifth of the text; default 200. BatchSize is the tokens of a step,
	// by default that of the phase.
	Steps, BatchSize int
	// Leads are how long before a step Prefetch is called with its rows, default 1, 5 and 20 ms. Steps without Prefetch are always measured, too.
	Leads []time.Duration
}

// Steps is how long the steps of a text waited for their rows.
type Steps struct {
	// Tokens is the length of the text; the policy has learnt from the first Trained. Rows are those of a step, of StepTokens tokens.
	Tokens     int `json:"tokens"`
	Trained    int `json:"trained"`
	StepTokens int `json:"step_tokens"`
	Rows       int `json:"rows"`
	// Waits are those without Prefetch, those of the same steps with their rows in memory, and those with each lead.
	Waits []Wait `json:"waits"`
}

// Wait is how long steps waited for their rows.
type Wait struct {
	// Lead is how many seconds before a step Prefetch was called. InMemory says that all rows of the steps were in slab or host tier.
	Lead     float64 `json:"lead_seconds"`
	InMemory bool    `json:"in_memory"`
	Steps    int     `json:"steps"`
	// Ready is the time from Enqueue until the rows were in the output, in the order of the stream; Returned that until Batch.Wait had returned.
	Ready    Quantiles `json:"ready_seconds"`
	Returned Quantiles `json:"returned_seconds"`
	// Hits are the share of the rows that the slab held. AbsentRows are rows that a step did not find in memory, PagesRead and BytesRead what was read
	// from the drive, by Prefetch or for a step: means of a step.
	Hits       float64 `json:"hits"`
	AbsentRows float64 `json:"absent_rows"`
	PagesRead  float64 `json:"pages_read"`
	BytesRead  float64 `json:"bytes_read"`
	// ReadRows are the rows that were read for that.
	ReadRows float64 `json:"read_rows"`
}

// Quantiles are of seconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantilesOf(seconds []float64) Quantiles {
	slices.Sort(seconds)
	at := func(q float64) float64 { return seconds[int(q*float64(len(seconds)-1)+0.5)] }
	return Quantiles{at(0.5), at(0.99), at(1)}
}

// trainedShare is the share of a text, in percent, that the policy learns from; the rest is measured.
const trainedShare = 80

func (t *TextConfig) check(f *faults.List, c Config) {
	if t.Tokens == "" {
		return
	}
	f.If(c.RowBytes != workload.NgramRowBytes, "row bytes (%d) must be those of rows of float8 values (%d), which a text looks up", c.RowBytes, workload.NgramRowBytes)
	f.If(c.Gather.Device == "", "a text is looked up through a cache: a device must be given")
	f.If(t.Steps < 0, "steps (%d) must not be negative", t.Steps)
	for _, lead := range t.Leads {
		f.If(lead <= 0, "lead (%v) must be above 0", lead)
	}
}

// reading is a text that is about to be read. Each lead has a hash of its own, so that none finds the rows that another one has had read.
type reading struct {
	leads []time.Duration // the first is 0
	texts []*workload.Ngram
	train []*workload.Ngram
	steps Steps
	most  int   // steps of each lead
	rows  int64 // of the table
}

// read prepares the steps of a text over a table of so many rows.
func (t *TextConfig) read(seed uint64, rows int64) (*reading, error) {
	r := &reading{leads: t.Leads, rows: rows}
	if r.leads == nil {
		r.leads = []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}
	}
	r.leads = append([]time.Duration{0}, r.leads...)
	text, err := t.ReadText(seed)
	if err != nil {
		return nil, err
	}
	trained := len(text) * trainedShare / 100
	if trained < 1 {
		return nil, fmt.Errorf("drive: tokens (%d) must be at least 2: some train the policy, and some are measured", len(text))
	}
	for i := range r.leads {
		hash, err := workload.NewNgramHash(workload.NgramHashOptions{Orders: t.Orders, Heads: t.Heads, Layers: t.Layers, Rows: rows, Seed: seed + uint64(i)})
		if err != nil {
			return nil, err
		}
		o := workload.NgramOptions{Text: text, To: trained, Hash: hash, Rows: rows, Phase: workload.Prefill}
		before, err := workload.NewNgram(o)
		if err != nil {
			return nil, err
		}
		o = workload.NgramOptions{Text: text, From: trained, Hash: hash, Rows: rows, Phase: workload.Phase(t.Phase), BatchSize: t.BatchSize, Batches: cmp.Or(t.Steps, 200)}
		measured, err := workload.NewNgram(o)
		if err != nil {
			return nil, err
		}
		r.train, r.texts = append(r.train, before), append(r.texts, measured)
	}
	first := r.texts[0].Batch(0, nil)
	perToken := t.RowsPerToken()
	r.steps = Steps{Tokens: len(text), Trained: trained, StepTokens: len(first) / perToken, Rows: len(first)}
	r.most = r.texts[0].Batches()
	return r, nil
}

// learn yields the rows of the first part of the text, for a policy to observe.
func (r *reading) learn(yield func(int, []int64) bool) {
	var rows []int64
	for _, w := range r.train {
		for i := range w.Batches() {
			if rows = w.Batch(i, rows[:0]); !yield(0, rows) {
				return
			}
		}
	}
}

// measure reads the steps of each lead, and those without one a second time, when their rows have come to the host tier.
func (r *reading) measure(ctx context.Context, g *gatherer) (*Steps, error) {
	if err := r.warmUp(ctx, g); err != nil {
		return nil, err
	}
	for i, lead := range r.leads {
		all := make([][]int64, r.most)
		for j := range all {
			all[j] = r.texts[i].Batch(j, nil)
		}
		w, err := g.wait(ctx, all, lead)
		if err != nil {
			return nil, err
		}
		r.steps.Waits = append(r.steps.Waits, *w)
		if i > 0 {
			continue
		}
		for _, rows := range all { // what the ring has given up since, if it is small
			if err := g.c.Prefetch(0, rows); err != nil {
				return nil, err
			}
			if _, _, err := g.gather(ctx, rows); err != nil {
				return nil, err
			}
		}
		if w, err = g.wait(ctx, all, 0); err != nil {
			return nil, err
		}
		w.InMemory = w.AbsentRows == 0
		r.steps.Waits = append(r.steps.Waits, *w)
	}
	return &r.steps, nil
}

// warmUp reads rows of no text: the first batches wait for kernels to be loaded, too.
func (r *reading) warmUp(ctx context.Context, g *gatherer) error {
	random := rand.New(rand.NewPCG(1, 1))
	rows := make([]int64, r.steps.Rows)
	for range 3 {
		for i := range rows {
			rows[i] = random.Int64N(r.rows)
		}
		if _, _, err := g.gather(ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// wait measures steps, one after the other.
func (g *gatherer) wait(ctx context.Context, steps [][]int64, lead time.Duration) (*Wait, error) {
	before, err := g.c.Stats()
	if err != nil {
		return nil, err
	}
	var ready, returned []float64
	lookups := 0.0
	for i, rows := range steps {
		if lead > 0 {
			known := time.Now()
			if err := g.c.Prefetch(0, rows); err != nil {
				return nil, err
			}
			time.Sleep(time.Until(known.Add(lead)))
		}
		a, b, err := g.gather(ctx, rows)
		if err != nil {
			return nil, err
		}
		if i == 0 || i == len(steps)-1 {
			if err := g.verify(rows); err != nil {
				return nil, err
			}
		}
		ready, returned, lookups = append(ready, a), append(returned, b), lookups+float64(len(rows))
	}
	after, err := g.c.Stats()
	if err != nil {
		return nil, err
	}
	done := after.Tables[0].Hits - before.Tables[0].Hits
	was, is := before.Tables[0].Tiers, after.Tables[0].Tiers
	mean := func(was, is int64) float64 { return float64(is-was) / float64(len(steps)) }
	return &Wait{
		Lead: lead.Seconds(), Steps: len(steps), Ready: quantilesOf(ready), Returned: quantilesOf(returned), Hits: float64(done) / lookups,
		AbsentRows: mean(was.AbsentRows, is.AbsentRows), PagesRead: mean(was.PagesRead, is.PagesRead), BytesRead: mean(was.BytesRead, is.BytesRead),
		ReadRows: mean(was.RowsRead, is.RowsRead),
	}, nil
}
