package workload

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// NgramHashOptions describes how n-grams of tokens become row numbers. Zero fields stand for defaults.
type NgramHashOptions struct {
	// Orders are the lengths of the n-grams, each 1 to MaxNgramOrder, in any order, none twice. Default 2, 3.
	Orders []int
	// Heads is how many rows each n-gram has in each layer, 1 to 256. Default 8.
	Heads int
	// Layers is how many layers of the model have n-gram tables, 1 to 1,024. Default 1.
	Layers int
	// Rows is an upper bound on the rows of all tables together. Default NgramRows.
	Rows int64
	// Seed selects the multipliers. Any value, 0 included, is a seed of its own.
	Seed uint64
}

const (
	// MaxNgramOrder is the length of the longest n-gram.
	MaxNgramOrder = 8
	// NgramRows is the default of NgramHashOptions.Rows.
	NgramRows = 2_000_000
	// MaxToken is the largest token.
	MaxToken = 1<<24 - 1
)

// NgramHash maps the n-grams that end at a token to row numbers. It is read-only, and safe for concurrent use.
//
// Each layer, order and head has a table of its own; their rows are numbered one table after the other, layer by layer, in a layer order by
// order, in an order head by head. The length of a table is a prime: the tables, in that order, have the largest primes that do not exceed
// Rows ÷ tables, from the largest down, each once. So two heads whose n-grams collide in one table do not collide in the other as well.
//
// The row of the n-gram of tokens t(0), the last one, to t(n-1), the first one, in table g is
//
//	s = Σ m(g,k) × (t(k) + 1) mod 2^64,   k = 0 … n-1
//	h = (s xor s >> 32) × 0x9e3779b97f4a7c15 mod 2^64
//	offset(g) + (h >> 1) mod length(g)
//
// where shifts bring in zeros, and the multiplier m(g,k) is output 8g + k of SplitMix64 that starts from Seed, with its lowest bit set. What
// would lie before the first token of a text adds nothing to s. (Without the second line n-grams that differ in one token by a constant would
// fall on rows at a constant distance. The shift by 1 makes h a positive number of 63 bits, for frameworks without unsigned remainders.)
type NgramHash struct {
	heads, layers int
	rows          int64
	tables        []ngramTable
}

type ngramTable struct {
	order       int
	offset      int64
	length      uint64
	multipliers [MaxNgramOrder]uint64
}

// NewNgramHash checks the options and returns the hash.
func NewNgramHash(o NgramHashOptions) (*NgramHash, error) {
	if len(o.Orders) == 0 {
		o.Orders = []int{2, 3}
	}
	o.Heads, o.Layers, o.Rows = cmp.Or(o.Heads, 8), cmp.Or(o.Layers, 1), cmp.Or(o.Rows, NgramRows)
	f := faults.List{Prefix: "workload: n-grams: "}
	for i, n := range o.Orders {
		f.If(n < 1 || n > MaxNgramOrder, "Orders (%d) must be in [1, %d]", n, MaxNgramOrder)
		f.If(slices.Contains(o.Orders[:i], n), "Orders (%d) must not have an order twice", n)
	}
	f.If(o.Heads < 1 || o.Heads > 256, "Heads (%d) must be in [1, 256]", o.Heads)
	f.If(o.Layers < 1 || o.Layers > 1024, "Layers (%d) must be in [1, 1024]", o.Layers)
	f.If(o.Rows < 1 || o.Rows > maxRows, "Rows (%d) must be in [1, %d]", o.Rows, int64(maxRows))
	if err := f.Err(); err != nil {
		return nil, err
	}
	h := &NgramHash{heads: o.Heads, layers: o.Layers, tables: make([]ngramTable, o.Layers*len(o.Orders)*o.Heads)}
	share := o.Rows / int64(len(h.tables))
	length := share + 1
	for g := range h.tables {
		t := &h.tables[g]
		for length--; length >= 2 && !big.NewInt(length).ProbablyPrime(0); length-- { // exact below 2^64
		}
		if length < 2 {
			f.Addf("Rows (%d) must be more: %d tables of %d rows at most need as many different primes", o.Rows, len(h.tables), share)
			return nil, f.Err()
		}
		t.order, t.offset, t.length = o.Orders[g/o.Heads%len(o.Orders)], h.rows, uint64(length)
		for k := range t.multipliers {
			t.multipliers[k] = mix64(o.Seed+uint64(MaxNgramOrder*g+k)*gamma) | 1
		}
		h.rows += length
	}
	return h, nil
}

// Rows is the number of rows of all tables together.
func (h *NgramHash) Rows() int64 { return h.rows }

// RowsPerToken is the number of rows that a token looks up: layers × orders × heads.
func (h *NgramHash) RowsPerToken() int { return len(h.tables) }

// Append appends the rows of the n-grams that end at text[i], RowsPerToken of them in the order of the tables, to dst. It panics unless i is
// in [0, len(text)).
func (h *NgramHash) Append(dst []int64, text []int32, i int) []int64 {
	var last [MaxNgramOrder]uint64
	for k := range min(i+1, MaxNgramOrder) {
		last[k] = uint64(uint32(text[i-k])) + 1
	}
	for g := range h.tables {
		t := &h.tables[g]
		sum := uint64(0)
		for k := range t.order {
			sum += t.multipliers[k] * last[k]
		}
		sum = (sum ^ sum>>32) * gamma
		dst = append(dst, t.offset+int64(sum>>1%t.length))
	}
	return dst
}
