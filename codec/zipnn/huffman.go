package zipnn

import (
	"fmt"

	"github.com/tensorcache/tensorcache/codec/internal/huffman"
)

const (
	maxCode = huffman.MaxCode // bits of the longest code: tables of 2^12 entries
	escape  = huffman.Escape  // the symbol for values without a code; the 8 bits of the value follow
	symbols = huffman.Symbols
)

// entry is an entry of a decoding table: length of the code << 9 | symbol.
type entry uint16

func (e entry) symbol() int { return int(e & 511) }
func (e entry) length() int { return int(e >> 9) }

// codebook is a canonical prefix code: codes are in the order of length, and codes of equal length in the order of symbols.
type codebook struct {
	codes [symbols]huffman.Code
	// The index of ahead is the next maxCode bits, the first being the lowest. In the index of back the first is the highest.
	ahead, back [1 << maxCode]entry
	// The index of runs is the next runBits bits, the first being the lowest. A run has at most 1 << shift values.
	runs  *[1 << runBits]run
	shift uint
}

// newCodebook returns the code with these lengths. It returns an error if they do not make a complete prefix code.
func newCodebook(lengths *[symbols]uint8) (*codebook, error) {
	codes, err := huffman.Codes(lengths, maxCode)
	if err != nil {
		return nil, fmt.Errorf("zipnn: %w", err)
	}
	b := &codebook{codes: codes}
	for s, n := range lengths {
		if n == 0 {
			continue
		}
		c := codes[s]
		e := entry(int(n)<<9 | s)
		for rest := range 1 << (maxCode - n) {
			b.ahead[int(c.LSB)|rest<<n] = e
			b.back[int(c.MSB)<<(maxCode-n)|rest] = e
		}
	}
	return b, nil
}
