package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/memlimit"
)

// Ngram is a run's n-gram workload: lookups in the n-gram tables of a language model that reads a text. The zero value is none. The first 80 %
// of the text trains the policy, the rest is measured. BatchSize is workload.NgramOptions', Batches are all by default, and so are
// TrainBatches. Without features the table is generated: rows of 256 float8 values and their scales.
type Ngram struct {
	// Workload is "ngram", "embedding", of which the other fields say nothing, or "" for none.
	Workload string `json:"workload,omitempty"`
	// Rows is those of all tables of the model together. 0: the rows of the features file, else workload.NgramRows.
	Rows int64 `json:"rows,omitempty"`
	workload.NgramSpec
}

const ngramKind = "ngram"

// trainShare of 5 tokens of a text train the policy: its first ones.
const trainShare = 4

// readsText says whether the run's workload is of n-grams.
func (n *Ngram) readsText() bool { return n.Workload == ngramKind }

// validateNgram reports what is wrong with the fields of the n-gram workload.
func (c *Config) validateNgram(policy admission.Spec, f *faults.List) {
	if !c.readsText() {
		return
	}
	f.If(c.Tokens == "", "--workload %s needs --tokens, a text", ngramKind)
	f.If(c.Graph != "" || c.IDs != "" || c.Weighted, "--workload %s contradicts --graph, --ids and --weighted: the workload is one or the other", ngramKind)
	f.If(policy.Learns == admission.FromGraph, "--policy %s needs a graph, which --workload %s has not", c.Policy, ngramKind)
	f.If(c.Phase != "" && !slices.Contains(workload.Phases, workload.Phase(c.Phase)), "--phase (%q) must be %s or %s", c.Phase, workload.Decode, workload.Prefill)
	f.If(c.TextTokens < 0, "--text-tokens (%d) must not be negative", c.TextTokens)
	if c.Features == "" && c.joined == nil {
		_, err := c.hash(cmp.Or(c.Rows, workload.NgramRows))
		f.Add(err)
	}
}

// hash returns the hash for a table of so many rows.
func (c *Config) hash(rows int64) (*workload.NgramHash, error) {
	h, err := workload.NewNgramHash(workload.NgramHashOptions{Orders: c.Orders, Heads: c.Heads, Layers: c.Layers, Rows: rows, Seed: c.dataSeed()})
	if err != nil {
		return nil, errors.New(ngramFlags.Replace(err.Error()))
	}
	return h, nil
}

// ngramFlags replaces options of package workload by flags.
var ngramFlags = strings.NewReplacer("workload: n-grams: ", "", "Orders (", "--orders (", "Heads (", "--heads (", "Layers (", "--layers (", "Rows (", "--rows (")

// memory estimates the host memory of the text and a batch.
func (n *Ngram) memory(batchSize int, rowBytes float64) []memlimit.Need {
	const token = 4 + 4 + 8 // of a text, of the one it was drawn from or what draws it, and as the file is read
	text := memlimit.Need{Setting: "--tokens", Value: n.Tokens}
	tokens, _ := elements(n.Tokens) // LoadTokens says what is wrong with the file
	if n.TextTokens > 0 {
		tokens += float64(n.TextTokens)
		text.Setting, text.Value = "--text-tokens", n.TextTokens
	}
	text.Bytes = token * tokens
	size := cmp.Or(batchSize, workload.PrefillTokens)
	batch := min(float64(size), tokens) * float64(n.RowsPerToken())
	return []memlimit.Need{text, {Setting: "--batch-size", Value: size, Bytes: 1.25 * batch * (rowBytes + 8)}}
}

// ngramTable generates the table.
func (r *run) ngramTable() (*dataset.Table, error) {
	r.progress.Stage("generating the n-gram tables", 0)
	rows := int(cmp.Or(r.cfg.Rows, workload.NgramRows))
	data, err := workload.Float8Rows(rows, workload.NgramElements, r.cfg.dataSeed())
	if err != nil {
		return nil, err
	}
	return &dataset.Table{Name: "generated", DType: workload.Float8Row(workload.NgramElements), Rows: rows, RowBytes: workload.NgramRowBytes, Data: data}, nil
}

// readText reads the text.
func (r *run) readText() (err error) {
	r.progress.Stage("reading the text", 0)
	if r.text, err = r.cfg.ReadText(r.cfg.dataSeed()); err == nil && len(r.text) < 2 {
		err = fmt.Errorf("--tokens (%s): tokens (%d) must be at least 2: some train the policy, and some are measured", r.cfg.Tokens, len(r.text))
	}
	return err
}

// prepareNgram makes the workload.
func (r *run) prepareNgram() error {
	c := &r.cfg
	if c.Rows > int64(r.table.Rows) {
		return fmt.Errorf("--rows (%d) must be at most those of table %s (%d)", c.Rows, r.table.Name, r.table.Rows)
	}
	hash, err := c.hash(cmp.Or(c.Rows, int64(r.table.Rows)))
	if err != nil {
		return err
	}
	measureFrom := max(1, len(r.text)*trainShare/(trainShare+1))
	part := func(from, to, most int) (workload.Workload, int, error) {
		if most == 0 {
			return nil, 0, nil
		}
		o := workload.NgramOptions{
			Text: r.text, From: from, To: to, Hash: hash, Rows: int64(r.table.Rows), Phase: workload.Phase(c.Phase), BatchSize: c.BatchSize, Batches: max(0, most),
		}
		w, err := workload.NewNgram(o)
		if err != nil {
			return nil, 0, err
		}
		return w, w.Batches(), nil
	}
	if r.measured, r.last, err = part(measureFrom, len(r.text), c.Batches); err != nil {
		return err
	}
	r.training, r.trainLast, err = part(0, measureFrom, c.TrainBatches)
	return err
}
