package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// Phase is how a language model's server goes through text.
type Phase string

// Phases.
const (
	// Prefill is of prompts: a batch is so many tokens of the text, one after the other.
	Prefill Phase = "prefill"
	// Decode is of answers: a batch is one token each of so many sequences, which begin at different places of the text and go on token by token.
	Decode Phase = "decode"
)

// Phases are all of them.
var Phases = []Phase{Decode, Prefill}

// Defaults of NgramOptions.BatchSize.
const (
	PrefillTokens   = 4096
	DecodeSequences = 256
)

// Generated n-gram tables have rows of NgramElements float8 values with a scale for each Float8Block of them: Float8Rows.
const (
	NgramElements = 256
	NgramRowBytes = NgramElements + NgramElements/Float8Block
)

// NgramOptions describes lookups in the n-gram tables of a language model that reads a text.
type NgramOptions struct {
	// Text are tokens, 0 to MaxToken. At least one must be read.
	Text []int32
	// From and To are the part of the text that is read: tokens [From, To). N-grams reach back before From. To 0: the end.
	From, To int
	// Hash maps n-grams to rows.
	Hash *NgramHash
	// Rows is the rows of the table, at least the Hash's. Default: those.
	Rows int64
	// Phase is Decode by default.
	Phase Phase
	// BatchSize is tokens: of a prefill batch (default PrefillTokens), or sequences of a decode batch (default DecodeSequences), at most as
	// many as there are tokens to read.
	BatchSize int
	// Batches is the most batches. 0: all of the part.
	Batches int
}

// Ngram is the access pattern of n-gram tables: each token of a batch looks up NgramHash.RowsPerToken rows. Prefill and decode of the same part
// look up the same rows, in other batches.
type Ngram struct {
	tabled
	o NgramOptions
}

// NewNgram checks the options and returns the workload.
func NewNgram(o NgramOptions) (*Ngram, error) {
	o.To, o.Phase = cmp.Or(o.To, len(o.Text)), cmp.Or(o.Phase, Decode)
	f := faults.List{Prefix: "workload: n-grams: "}
	f.If(o.From < 0 || o.To > len(o.Text) || o.From >= o.To, "tokens [%d, %d) must be at least 1 of the text's %d", o.From, o.To, len(o.Text))
	f.If(!slices.Contains(Phases, o.Phase), "Phase (%q) must be %s or %s", o.Phase, Decode, Prefill)
	f.If(o.BatchSize < 0 || o.BatchSize > math.MaxInt32, "BatchSize (%d) must be in [1, %d]", o.BatchSize, math.MaxInt32)
	f.If(o.Batches < 0, "Batches (%d) must not be negative", o.Batches)
	f.If(o.Hash == nil, "Hash must be given")
	if err := f.Err(); err != nil {
		return nil, err
	}
	if o.Rows = cmp.Or(o.Rows, o.Hash.Rows()); o.Rows < o.Hash.Rows() {
		return nil, fmt.Errorf("workload: n-grams: Rows (%d) must be at least those of the hash (%d)", o.Rows, o.Hash.Rows())
	}
	size := PrefillTokens
	if o.Phase == Decode {
		size = DecodeSequences
	}
	o.BatchSize = min(cmp.Or(o.BatchSize, size), o.To-o.From)
	batches := (o.To-o.From-1)/o.BatchSize + 1
	if o.Batches > 0 {
		batches = min(batches, o.Batches)
	}
	return &Ngram{tabled{"ngram", batches, o.Rows}, o}, nil
}

// NewCursor returns w, which needs no scratch.
func (w *Ngram) NewCursor() Cursor { return w }

// Batch implements Cursor: the rows of a token are together.
func (w *Ngram) Batch(i int, dst []int64) []int64 {
	checkBatch(i, w.batches)
	o := &w.o
	tokens := o.To - o.From
	if o.Phase == Prefill {
		for at := o.From + i*o.BatchSize; at < min(o.From+(i+1)*o.BatchSize, o.To); at++ {
			dst = o.Hash.Append(dst, o.Text, at)
		}
		return dst
	}
	// The first sequences are one token longer than the others, where the tokens do not divide evenly.
	length, longer := tokens/o.BatchSize, tokens%o.BatchSize
	at := o.From
	for s := range o.BatchSize {
		own := length
		if s < longer {
			own++
		}
		if i < own {
			dst = o.Hash.Append(dst, o.Text, at+i)
		}
		at += own
	}
	return dst
}
