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
	// Active is how many conversations go on at a time, 1 to 2^24. Default 64.
	Active int
	// Requests is the number of requests, each a batch, 1 to 2^28. Default 2000.
	Requests int
	// Seed fixes the requests. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// The rest of the workload.
const (
	// A conversation has one of so many system prompts, by Zipf's law with exponent 1. Each has so many blocks.
	kvPrompts, kvPromptBlocks = 8, 8
	// kvTurns is the mean number of requests of a conversation.
	kvTurns = 5
	// The first request of a conversation, and each later one, adds so many blocks in the mean.
	kvFirstBlocks, kvTurnBlocks = 24, 8
	// kvBlockBytes is 16 tokens in one layer of a model of 8 G parameters (8 heads × 128 × 2 bytes, keys and values).
	kvBlockBytes = 64 << 10
)

// KVBlocks is the access pattern of prefix caching: a batch is a request, which looks up its prompt's blocks and all blocks
// of its conversation so far, in order, and then those that it adds. Numbers of turns and blocks are geometric.
type KVBlocks struct {
	tabled
	requests []kvRequest
}

// kvRequest is blocks [prompt, prompt + kvPromptBlocks) and [first, first + blocks).
type kvRequest struct {
	prompt, first, blocks int64
}

// kvConversation is one that goes on.
type kvConversation struct {
	prompt, first, blocks int64
	added                 []int64 // blocks of the turns to come
}

// NewKVBlocks checks the options and returns the workload.
func NewKVBlocks(o KVBlocksOptions) (*KVBlocks, error) {
	o.Active, o.Requests = cmp.Or(o.Active, 64), cmp.Or(o.Requests, 2000)
	f := faults.List{Prefix: "workload: KV blocks: "}
	f.If(o.Active < 1 || o.Active > 1<<24, "Active (%d) must be in [1, %d]", o.Active, 1<<24)
	f.If(o.Requests < 1 || o.Requests > 1<<28, "Requests (%d) must be in [1, %d]", o.Requests, 1<<28)
	if err := f.Err(); err != nil {
		return nil, err
	}
	w := &KVBlocks{tabled: tabled{"kv-blocks", o.Requests, kvPrompts * kvPromptBlocks}, requests: make([]kvRequest, 0, o.Requests)}
	r := newStream(o.Seed, purposeConversations, 0)
	prompts := newZipf(kvPrompts, 1)
	active := make([]kvConversation, o.Active)
	for range o.Requests {
		c := &active[below(r, uint64(o.Active))]
		if len(c.added) == 0 {
			*c = kvConversation{prompt: prompts.draw(r) * kvPromptBlocks, first: w.rows, added: c.added}
			for turn := range geometric(r, kvTurns) {
				mean := float64(kvTurnBlocks)
				if turn == 0 {
					mean = kvFirstBlocks
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

// geometric draws from 1, 2, ... with the given mean, above 1.
func geometric(r *rand.PCG, mean float64) int64 {
	return 1 + int64(math.Log(uniform(r))/math.Log1p(-1/mean))
}

// RowBytes returns 64 KiB, the length of a block.
func (w *KVBlocks) RowBytes(int64) int64 { return kvBlockBytes }

// NewCursor returns a cursor without scratch.
func (w *KVBlocks) NewCursor() Cursor { return kvCursor{w} }

type kvCursor struct{ w *KVBlocks }

// Batch implements Cursor.
func (c kvCursor) Batch(i int, dst []int64) []int64 {
	checkBatch(i, len(c.w.requests))
	q := &c.w.requests[i]
	for b := range int64(kvPromptBlocks) {
		dst = append(dst, q.prompt+b)
	}
	for b := range q.blocks {
		dst = append(dst, q.first+b)
	}
	return dst
}
