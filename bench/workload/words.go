package workload

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
)

// wordExponent is the e of the law "probability ∝ rank^-e" by which words are drawn: Zipf's law of texts is about 1, without the most
// frequent words, which bags of words leave out, less.
const wordExponent = 0.75

// Words generates a table of rows × vocabulary float32 values that are 0 or 1, row after row, as little-endian bytes: bags of words. A
// row draws 1 to 2 × mean - 1 words by a power law; drawing one again adds nothing. mean is 1 to vocabulary. The same
// seed gives the same bytes.
func Words(rows, vocabulary, mean int, seed uint64) ([]byte, error) {
	if rows < 1 {
		return nil, fmt.Errorf("workload: words: rows (%d) must be at least 1", rows)
	}
	if vocabulary < 1 || vocabulary > math.MaxInt32 {
		return nil, fmt.Errorf("workload: words: vocabulary (%d) must be 1 to %d", vocabulary, math.MaxInt32)
	}
	if mean < 1 || mean > vocabulary {
		return nil, fmt.Errorf("workload: words: mean (%d) must be 1 to %d, the vocabulary", mean, vocabulary)
	}
	if hi, lo := bits.Mul64(uint64(rows), uint64(vocabulary)); hi != 0 || lo > math.MaxInt/4 {
		return nil, fmt.Errorf("workload: words: rows × vocabulary (%d × %d) must be at most %d", rows, vocabulary, math.MaxInt/4)
	}
	words := newAliasTable(rankWeights(rankPermutation(vocabulary, seed), wordExponent))
	table := make([]byte, rows*vocabulary*4)
	blockRows := max(featureBlock/vocabulary, 1)
	one := math.Float32bits(1)
	forEachBlock((rows-1)/blockRows+1, func(b int) {
		r := newStream(seed, purposeWords, uint64(b))
		lengths := rand.New(r)
		for row := b * blockRows; row < min((b+1)*blockRows, rows); row++ {
			out := table[row*vocabulary*4:][:vocabulary*4]
			for range lengths.IntN(2*mean-1) + 1 { // 1 to 2 × mean - 1
				binary.LittleEndian.PutUint32(out[4*words.draw(r):], one)
			}
		}
	})
	return table, nil
}
