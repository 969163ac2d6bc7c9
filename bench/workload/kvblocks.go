package workload

import (
	"cmp"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/rand/v2"
)

// KVBlocksOptions describes requests to a language model's server, which reuses the key-value blocks of a request's prefix.
// The zero value is the default workload.
type KVBlocksOptions struct {
	// Active is how many conversations go on at a time, at least 1. Default 64.
	Active int
	// Prompts is the number of system prompts, of which a conversation has one, by Zipf's law with exponent 1; at least 1.
	// Default 8. Each has PromptBlocks blocks, at least 1. Default 8.
	Prompts, PromptBlocks int
	// Turns is the mean number of requests of a conversation, at least 1. Default 5.
	Turns float64
	// FirstBlocks and TurnBlocks are the mean numbers of blocks that a conversation's first request, and each later one, adds;
	// at least 1. Default 24 and 8.
	FirstBlocks, TurnBlocks float64
	// BlockBytes is the length of a block, at least 1. Default 64 KiB: 16 tokens in one layer of a model of 8 G parameters
	// (8 heads × 128 × 2 bytes, keys and values).
	BlockBytes int64
	// Requests is the number of requests, each a batch, at least 1. Default 2000.
	Requests int
	// Seed fixes the requests. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *KVBlocksOptions) EnsureDefaults() {
	o.Active = cmp.Or(o.Active, 64)
	o.Prompts = cmp.Or(o.Prompts, 8)
	o.PromptBlocks = cmp.Or(o.PromptBlocks, 8)
	o.Turns = cmp.Or(o.Turns, 5)
	o.FirstBlocks = cmp.Or(o.FirstBlocks, 24)
	o.TurnBlocks = cmp.Or(o.TurnBlocks, 8)
	o.BlockBytes = cmp.Or(o.BlockBytes, 64<<10)
	o.Requests = cmp.Or(o.Requests, 2000)
}

// Validate reports every field out of range.
func (o *KVBlocksOptions) Validate() error {
	f := faults.List{Prefix: "workload: KV blocks: "}
	for _, n := range []struct {
		name           string
		v, least, most int
	}{
		{"Active", o.Active, 1, 1 << 24}, {"Prompts", o.Prompts, 1, 1 << 24}, {"PromptBlocks", o.PromptBlocks, 1, 1 << 20},
		{"Requests", o.Requests, 1, 1 << 28},
	} {
		f.If(n.v < n.least || n.v > n.most, "%s (%d) must be in [%d, %d]", n.name, n.v, n.least, n.most)
	}
	for _, m := range []struct {
		name string
		v    float64
	}{{"Turns", o.Turns}, {"FirstBlocks", o.FirstBlocks}, {"TurnBlocks", o.TurnBlocks}} {
		f.If(!(m.v >= 1 && m.v <= 1<<16), "%s (%g) must be in [1, %d]", m.name, m.v, 1<<16)
	}
	f.If(o.BlockBytes < 1, "BlockBytes (%d) must be at least 1", o.BlockBytes)
	return f.Err()
}

// KVBlocks is the access pattern of prefix caching: a batch is a request, which looks up its prompt's blocks and all blocks
// of its conversation so far, in order, and then those that it adds. Numbers of turns and blocks are geometric.
type KVBlocks struct {
	tabled
	o        KVBlocksOptions
	requests []kvRequest
}

// kvRequest is blocks [prompt, prompt + PromptBlocks) and [first, first + blocks).
type kvRequest struct {
	prompt, first int64
	blocks        int64
}

// kvConversation is one that goes on.
type kvConversation struct {
	prompt, first, blocks int64
	added                 []int64 // blocks of the turns to come
}

// NewKVBlocks checks the options and returns the workload.
func NewKVBlocks(o KVBlocksOptions) (*KVBlocks, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &KVBlocks{tabled: tabled{"kv-blocks", o.Requests, int64(o.Prompts) * int64(o.PromptBlocks)}, o: o}
	r := newStream(o.Seed, purposeConversations, 0)
	prompts := newZipf(int64(o.Prompts), 1)
	active := make([]kvConversation, o.Active)
	for range o.Requests {
		c := &active[below(r, uint64(o.Active))]
		if len(c.added) == 0 {
			*c = kvConversation{prompt: prompts.draw(r) * int64(o.PromptBlocks), first: w.rows, added: c.added}
			for turn := range geometric(r, o.Turns) {
				mean := o.TurnBlocks
				if turn == 0 {
					mean = o.FirstBlocks
				}
				n := geometric(r, mean)
				c.added = append(c.added, n)
				w.rows += n
			}
		}
		c.blocks += c.added[0]
		c.added = c.added[1:]
		w.requests = append(w.requests, kvRequest{c.prompt, c.first, c.blocks})
	}
	return w, nil
}

// geometric draws from 1, 2, ... with the given mean.
func geometric(r *rand.PCG, mean float64) int64 {
	u := uniform(r)
	if mean <= 1 {
		return 1
	}
	return 1 + int64(math.Log(u)/math.Log1p(-1/mean))
}

// RowBytes returns BlockBytes.
func (w *KVBlocks) RowBytes(int64) int64 { return w.o.BlockBytes }

// NewCursor returns a cursor without scratch.
func (w *KVBlocks) NewCursor() Cursor { return kvCursor{w} }

type kvCursor struct{ w *KVBlocks }

// Batch implements Cursor.
func (c kvCursor) Batch(i int, dst []int64) []int64 {
	checkBatch(i, len(c.w.requests))
	q := &c.w.requests[i]
	for b := range int64(c.w.o.PromptBlocks) {
		dst = append(dst, q.prompt+b)
	}
	for b := range q.blocks {
		dst = append(dst, q.first+b)
	}
	return dst
}
