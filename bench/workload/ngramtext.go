package workload

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/internal/npy"
)

// LoadTokens reads a text as token IDs from an .npy file of integers with one axis, or such an array of an .npz archive ("file.npz:array").
// Tokens must be 0 to MaxToken.
func LoadTokens(path string) ([]int32, error) {
	r, err := npy.Open(path, 1, "tokens")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ids, err := r.ReadInts()
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("workload: n-grams: %s: tokens (0) must be at least 1", r.Name())
	}
	text := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id > MaxToken {
			return nil, fmt.Errorf("workload: n-grams: %s: token %d (%d) must be in [0, %d]", r.Name(), i, id, MaxToken)
		}
		text[i] = int32(id)
	}
	return text, nil
}

// SampleText returns a text of n tokens that is drawn from the bigram statistics of another: each token follows the one before it as often as
// in that text. It begins as the text does, and begins anew behind a token that nothing follows. Pairs of tokens are then pairs of the
// text, but longer n-grams need not be, as in more text of the same kind. (Drawn from the statistics of longer n-grams, the text would repeat itself.)
//
// The same seed gives the same text. Memory: 4 bytes a token of both texts, and 4 × the largest token.
// REQUIRES: text is not empty, tokens are 0 to MaxToken, n ≥ 0.
func SampleText(text []int32, n int, seed uint64) []int32 {
	// Tokens that follow token t are followers[starts[t]:starts[t+1]].
	starts := make([]uint32, slices.Max(text)+2)
	for _, t := range text[:len(text)-1] {
		starts[t+1]++
	}
	for t := range starts[1:] {
		starts[t+1] += starts[t]
	}
	followers := make([]int32, len(text)-1)
	next := slices.Clone(starts)
	for i, t := range text[:len(text)-1] {
		followers[next[t]] = text[i+1]
		next[t]++
	}
	r := newStream(seed, purposeText, 0)
	out := make([]int32, n)
	for i := range out {
		out[i] = text[0]
		if i > 0 {
			from := followers[starts[out[i-1]]:starts[out[i-1]+1]]
			if len(from) > 0 {
				out[i] = from[below(r, uint64(len(from)))]
			}
		}
	}
	return out
}
