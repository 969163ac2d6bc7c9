package ndzip

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
)

// The stream form, that of ndzip's own programs for one-dimensional arrays of 32 or 64-bit words. It does not say how many
// elements there are.
//
//	+------------------------+---------+-------------+-------------+-----+----------------+
//	| end of each hypercube, | padding | hypercube 0 | hypercube 1 | ... | elements left  |
//	| uint32, in words       | to W    |             |             |     | over, raw      |
//	+------------------------+---------+-------------+-------------+-----+----------------+
//
// A hypercube is 4096 elements, coded as rows are: the heads of its groups, then their columns. Ends are counted from the
// first hypercube on.
const hypercube = 4096 // elements

// streamWord returns the bytes of a word.
func streamWord(dtype codec.DType) (int, error) {
	word, err := wordOf(dtype)
	if err == nil && word == 2 {
		err = codec.DTypeError(name, "element type of a stream (%v) must be float32 or float64", dtype)
	}
	return word, err
}

// streamHeader is the length of what comes before the first hypercube.
func streamHeader(hypercubes, word int) int { return (4*hypercubes + word - 1) / word * word }

// AppendStream appends the stream form of data, dtype's elements, to dst. Data must be whole elements, and the stream shorter than 2^32
// words.
func AppendStream(dst, data []byte, dtype codec.DType) ([]byte, error) {
	word, err := streamWord(dtype)
	if err != nil {
		return dst, err
	}
	if len(data)%word != 0 {
		return dst, codec.DTypeError(name, "data (%d bytes) must be a multiple of an element (%d)", len(data), word)
	}
	const groupsAtMost = hypercube / 32
	cube := hypercube * word
	n := len(data) / cube
	header := len(dst)
	dst = append(dst, make([]byte, streamHeader(n, word))...)
	first := len(dst)
	coded := make([]byte, cube+(groupsAtMost+1)*word)
	for i := range n {
		k := encodeGroups(coded, data[i*cube:][:cube], word, cube/groupBytes(word))
		dst = append(dst, coded[:k]...)
		binary.LittleEndian.PutUint32(dst[header+4*i:], uint32((len(dst)-first)/word))
	}
	return append(dst, data[n*cube:]...), nil
}

// DecodeStream fills data with the elements of a stream, dtype's, which must be as many and the stream whole.
func DecodeStream(data, stream []byte, dtype codec.DType) error {
	word, err := streamWord(dtype)
	if err != nil {
		return err
	}
	if len(data)%word != 0 {
		return codec.DTypeError(name, "data (%d bytes) must be a multiple of an element (%d)", len(data), word)
	}
	cube := hypercube * word
	n := len(data) / cube
	header := streamHeader(n, word)
	if len(stream) < header {
		return codec.CorruptError(name, "stream (%d bytes) is shorter than its header (%d)", len(stream), header)
	}
	groups := cube / groupBytes(word)
	at, body := 0, stream[header:]
	for i := range n {
		end := int(binary.LittleEndian.Uint32(stream[4*i:])) * word
		if end < at+groups*word || end > len(body) {
			return codec.CorruptError(name, "hypercube %d (bytes %d to %d of %d) is cut", i, at, end, len(body))
		}
		if k := groups*word + columnBytes(body[at:at+groups*word], word); k != end-at {
			return codec.CorruptError(name, "hypercube %d (%d bytes) must have %d", i, end-at, k)
		}
		decodeGroups(data[i*cube:], body[at:end], word, groups)
		at = end
	}
	if rest := len(data) - n*cube; len(body)-at != rest {
		return codec.CorruptError(name, "stream's elements left over (%d bytes) must be %d", len(body)-at, rest)
	}
	copy(data[n*cube:], body[at:])
	return nil
}
