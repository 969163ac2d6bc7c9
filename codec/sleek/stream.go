package sleek

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// The stream form, which SLEEK's own programs read and write: data of any length, in chunks of 16 KiB.
//
//	0       8              8 + 2k
//	+-------+--------------+---------+---------+-----+
//	| size  | k × length   | chunk 0 | chunk 1 | ... |    k = ⌈size / 16384⌉
//	| int64 | uint16       |         |         |     |
//	+-------+--------------+---------+---------+-----+
//
//	chunk: 0    32                        length - 2
//	       +----+-------------------------+----------+
//	       | 32 | 32 subchunks of 512 B   | bytes of |    or the bytes themselves: then the length is theirs
//	       | n  | n bits a word           | data     |
//	       +----+-------------------------+----------+
//
// The last chunk is padded with zeros before it is coded.
const (
	streamChunk    = 16 << 10
	streamSubchunk = 512
	streamHeader   = 8
	streamTrailer  = 2
)

// AppendStream appends the stream form of data, dtype's elements, to dst.
func AppendStream(dst, data []byte, dtype codec.DType) ([]byte, error) {
	c, err := New(dtype, streamChunk, streamSubchunk)
	if err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	chunks := (len(data) + streamChunk - 1) / streamChunk
	lengths := len(dst)
	dst = append(dst, make([]byte, 2*chunks)...)
	coded := make([]byte, c.EncodeBound())
	for i := range chunks {
		part := data[i*streamChunk : min((i+1)*streamChunk, len(data))]
		whole := part
		if len(part) < streamChunk {
			whole = append(make([]byte, 0, streamChunk), part...)[:streamChunk]
		}
		n := c.encode(coded, whole)
		before := len(dst)
		if n+streamTrailer < len(part) {
			dst = binary.LittleEndian.AppendUint16(append(dst, coded[:n]...), uint16(len(part)))
		} else {
			dst = append(dst, part...)
		}
		binary.LittleEndian.PutUint16(dst[lengths+2*i:], uint16(len(dst)-before))
	}
	return dst, nil
}

// DecodeStream returns the data of a stream, dtype's elements. The stream must be whole.
func DecodeStream(stream []byte, dtype codec.DType) ([]byte, error) {
	c, err := New(dtype, streamChunk, streamSubchunk)
	if err != nil {
		return nil, err
	}
	if len(stream) < streamHeader {
		return nil, codec.CorruptError(name, "stream (%d bytes) is shorter than its header (%d)", len(stream), streamHeader)
	}
	size, rest := binary.LittleEndian.Uint64(stream), stream[streamHeader:]
	// A chunk takes two bytes at the least, so a size in proportion to the stream cannot overflow.
	if size/streamChunk > uint64(len(rest))/2 || (size+streamChunk-1)/streamChunk > uint64(len(rest))/2 {
		return nil, codec.CorruptError(name, "stream (%d bytes) is shorter than the lengths of its chunks (%d bytes of data)", len(stream), size)
	}
	chunks := int((size + streamChunk - 1) / streamChunk)
	lengths, rest := rest[:2*chunks], rest[2*chunks:]
	sum := 0
	for i := range chunks {
		sum += int(binary.LittleEndian.Uint16(lengths[2*i:]))
	}
	if sum != len(rest) {
		return nil, codec.CorruptError(name, "stream's chunks (%d bytes) are not as long as their lengths say (%d)", len(rest), sum)
	}
	data := make([]byte, size)
	whole := make([]byte, streamChunk)
	for i := range chunks {
		part := data[i*streamChunk : min((i+1)*streamChunk, len(data))]
		n := int(binary.LittleEndian.Uint16(lengths[2*i:]))
		chunk := rest[:n]
		rest = rest[n:]
		if n == len(part) {
			copy(part, chunk)
			continue
		}
		if err := c.decodeChunk(whole, chunk, len(part)); err != nil {
			return nil, fmt.Errorf("%w (chunk %d)", err, i)
		}
		copy(part, whole)
	}
	return data, nil
}

func (c *Codec) decodeChunk(whole, chunk []byte, size int) error {
	if len(chunk) < streamTrailer {
		return codec.CorruptError(name, "chunk (%d bytes) is shorter than its trailer (%d)", len(chunk), streamTrailer)
	}
	body, trailer := chunk[:len(chunk)-streamTrailer], chunk[len(chunk)-streamTrailer:]
	if got := int(binary.LittleEndian.Uint16(trailer)); got != size {
		return codec.CorruptError(name, "chunk's data (%d bytes) must be %d", got, size)
	}
	n, err := c.Decode(whole, body)
	if err == nil && n != len(body) {
		err = codec.CorruptError(name, "chunk's words (%d bytes) must end at its trailer (%d)", n, len(body))
	}
	return err
}
