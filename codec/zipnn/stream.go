package zipnn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/huff0"

	"github.com/tensorcache/tensorcache/codec"
)

// The stream form, little-endian:
//
//	0      4       5         6          7   8             16
//	+------+-------+---------+----------+---+-------------+---------+---------+-----+-------+
//	| TCZS | ver 1 | element | exponent | 0 | data bytes  | chunk 0 | chunk 1 | ... | CRC32C|
//	|      |       | bytes   | bits     |   |             |         |         |     |       |
//	+------+-------+---------+----------+---+-------------+---------+---------+-----+-------+
//
// A chunk is what became of the next 256 KiB (128 KiB of elements of one byte) or of the bytes that are left: a block for each
// byte plane, lowest first, and the bytes after the last whole element. A block is its length × 4 + kind in 4 bytes, and its bytes:
//
//	kind 0: the plane as it is
//	kind 1: the value of all its bytes
//	kind 2: huff0's four streams and table, as in Zstandard's literals
//
// A plane is raw if coding it saves less than 5 %. The CRC covers the data.
const (
	streamMagic   = "TCZS"
	streamVersion = 1
	streamHeader  = 16
	streamChunk   = 256 << 10
)

// chunkBytes is the data in a chunk: a plane must fit in a block of huff0's.
func (l Layout) chunkBytes() int {
	if l.ElementBytes == 1 {
		return streamChunk / 2
	}
	return streamChunk
}

// AppendStream appends the stream form of data, elements of that layout, to dst.
func AppendStream(dst, data []byte, layout Layout) ([]byte, error) {
	if err := layout.check(); err != nil {
		return dst, err
	}
	dst = append(dst, streamMagic...)
	dst = append(dst, streamVersion, byte(layout.ElementBytes), byte(layout.ExponentBits), 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(data)))
	sum := crc32.Checksum(data, castagnoli)
	o, size := layout.order(), layout.ElementBytes
	chunk := make([]byte, min(len(data), layout.chunkBytes()))
	plane := make([]byte, 0, len(chunk)/size)
	var scratch huff0.Scratch
	scratch.Reuse = huff0.ReusePolicyNone
	for len(data) > 0 {
		n := copy(chunk, data)
		data = data[n:]
		whole := n / size * size
		o.applyAll(chunk[:whole])
		for p := range size {
			plane = plane[:0]
			for at := p; at < whole; at += size {
				plane = append(plane, chunk[at])
			}
			var err error
			if dst, err = appendBlock(dst, plane, &scratch); err != nil {
				return dst, err
			}
		}
		dst = append(dst, chunk[whole:n]...)
	}
	return binary.LittleEndian.AppendUint32(dst, sum), nil
}

func appendBlock(dst, plane []byte, scratch *huff0.Scratch) ([]byte, error) {
	kind, block := uint32(Raw), plane
	if len(plane) > 0 && bytes.Count(plane, plane[:1]) == len(plane) {
		kind, block = uint32(Constant), plane[:1]
	} else if coded, _, err := huff0.Compress4X(plane, scratch); err == nil {
		if float64(len(coded)) <= codedShare*float64(len(plane)) {
			kind, block = uint32(Coded), coded
		}
	} else if !errors.Is(err, huff0.ErrIncompressible) && !errors.Is(err, huff0.ErrUseRLE) {
		return dst, fmt.Errorf("zipnn: %w", err)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(block))<<2|kind)
	return append(dst, block...), nil
}

// AppendDecoded appends the data of a stream to dst. What no AppendStream writes is codec.ErrCorrupt, and takes no more memory
// than a chunk for every four bytes of it.
func AppendDecoded(dst, stream []byte) ([]byte, error) {
	if len(stream) < streamHeader+4 || !bytes.HasPrefix(stream, []byte(streamMagic)) {
		return dst, codec.CorruptError("zipnn", "stream (%d bytes) has no %q header", len(stream), streamMagic)
	}
	if stream[4] != streamVersion || stream[7] != 0 {
		return dst, codec.CorruptError("zipnn", "stream version (%d) is not %d", stream[4], streamVersion)
	}
	layout := Layout{int(stream[5]), int(stream[6])}
	if err := layout.check(); err != nil {
		return dst, codec.CorruptError("zipnn", "%v", err)
	}
	left := binary.LittleEndian.Uint64(stream[8:])
	rest, sum := stream[streamHeader:len(stream)-4], binary.LittleEndian.Uint32(stream[len(stream)-4:])
	start := len(dst)
	o, size := layout.order(), layout.ElementBytes
	var scratch huff0.Scratch
	var chunk []byte
	for left > 0 {
		n := int(min(left, uint64(layout.chunkBytes())))
		if chunk == nil {
			chunk = make([]byte, n)
		}
		chunk = chunk[:n]
		whole := n / size * size
		for p := range size {
			var err error
			if rest, err = decodeBlock(chunk[:whole], p, size, rest, &scratch); err != nil {
				return dst, codec.CorruptError("zipnn", "plane %d of the chunk with %d bytes to go: %v", p, left, err)
			}
		}
		if len(rest) < n-whole {
			return dst, codec.CorruptError("zipnn", "stream ends before its last bytes")
		}
		rest = rest[copy(chunk[whole:], rest):]
		o.undoAll(chunk[:whole])
		dst = append(dst, chunk...)
		left -= uint64(n)
	}
	if len(rest) != 0 {
		return dst, codec.CorruptError("zipnn", "stream has %d bytes after its data", len(rest))
	}
	if got := crc32.Checksum(dst[start:], castagnoli); got != sum {
		return dst, codec.CorruptError("zipnn", "data checksum (%08x) is not %08x", got, sum)
	}
	return dst, nil
}

// decodeBlock writes the plane of the block at the front of src to every size'th byte of chunk from byte p on, and returns
// what follows it.
func decodeBlock(chunk []byte, p, size int, src []byte, scratch *huff0.Scratch) ([]byte, error) {
	if len(src) < 4 {
		return nil, fmt.Errorf("block (%d bytes) is shorter than its header", len(src))
	}
	head := binary.LittleEndian.Uint32(src)
	kind, length := PlaneKind(head&3), int(head>>2)
	if src = src[4:]; length > len(src) {
		return nil, fmt.Errorf("block (%d bytes) ends after %d", length, len(src))
	}
	block, rest := src[:length], src[length:]
	n := len(chunk) / size
	switch kind {
	case Raw:
		if length != n {
			return nil, fmt.Errorf("raw block has %d bytes of %d", length, n)
		}
	case Constant:
		if length != 1 {
			return nil, fmt.Errorf("block of one value has %d bytes", length)
		}
		for at := p; at < len(chunk); at += size {
			chunk[at] = block[0]
		}
		return rest, nil
	case Coded:
		s, coded, err := huff0.ReadTable(block, scratch)
		if err != nil {
			return nil, err
		}
		if block, err = s.Decoder().Decompress4X(make([]byte, 0, n), coded); err != nil {
			return nil, err
		}
		if len(block) != n {
			return nil, fmt.Errorf("block has %d bytes of %d", len(block), n)
		}
	default:
		return nil, fmt.Errorf("block kind (%d) must be 0 to %d", kind, Coded)
	}
	if n > 0 {
		spread(chunk[p:], block, size)
	}
	return rest, nil
}

// spread writes a plane's bytes to every size'th of row.
func spread(row, plane []byte, size int) {
	for i, at := 0, 0; i < len(plane) && at < len(row); i, at = i+1, at+size {
		row[at] = plane[i]
	}
}
