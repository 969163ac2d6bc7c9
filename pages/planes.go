package pages

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/dtype"
)

// StagePlanes takes the bytes of elements apart by their place, so that exponents lie together, and stores each plane by a Huffman code of its own, by zstd, or as it is: the method of
// ZipNN (Hershcovitch et al., 2024). It is meant for pages of raw rows.
//
//	0             1       2
//	+-------------+-------+--------------------------------------+------------+
//	| element u8, | turned| parts of planes, the lowest plane    | bytes after|
//	| 1, 2, 4, 8  | u8    | first: method and length u32, bytes  | the last   |
//	+-------------+-------+--------------------------------------+------------+
//
// A part is planePart bytes of a plane, or what is left. turned is 1 if each element is rotated left by a bit, which brings the exponent to the highest byte.
const (
	planePart = 128 << 10

	planeRaw     = 0
	planeZstd    = 1
	planeHuffman = 2
	planeMethod  = 30 // bits of the length below the method
)

// planesOf returns how StagePlanes takes the elements of a type.
func planesOf(of dtype.Type) (element int, turned bool) {
	if of.IsRow() {
		return 1, false
	}
	return of.Size(), of == dtype.BFloat16 || of == dtype.Float32 || of == dtype.Float64
}

// turn rotates elements by a bit to the left, or with back to the right.
func turn(b []byte, element int, back bool) {
	le := binary.LittleEndian
	by := 1
	if back {
		by = -1
	}
	for ; len(b) >= element; b = b[element:] {
		switch element {
		case 2:
			le.PutUint16(b, bits.RotateLeft16(le.Uint16(b), by))
		case 4:
			le.PutUint32(b, bits.RotateLeft32(le.Uint32(b), by))
		case 8:
			le.PutUint64(b, bits.RotateLeft64(le.Uint64(b), by))
		}
	}
}

// planes compresses by StagePlanes. It is not safe for concurrent use.
type planes struct {
	element int
	turned  bool
	zstd    *zstd.Encoder
	huffman huff0.Scratch
	body    []byte
	plane   []byte
	part    []byte
}

// append appends the compressed form of a page's body to b.
func (p *planes) append(b, body []byte) []byte {
	p.body = append(p.body[:0], body...)
	b = append(b, byte(p.element), boolByte(p.turned))
	if p.turned {
		turn(p.body, p.element, false)
	}
	n := len(body) / p.element
	for place := range p.element {
		p.plane = p.plane[:0]
		for i := place; i < n*p.element; i += p.element {
			p.plane = append(p.plane, p.body[i])
		}
		for rest := p.plane; len(rest) > 0; {
			part := rest[:min(planePart, len(rest))]
			rest = rest[len(part):]
			method, stored := uint32(planeRaw), part
			p.huffman.Reuse = huff0.ReusePolicyNone
			if h, _, err := huff0.Compress4X(part, &p.huffman); err == nil && len(h) < len(stored) {
				method, stored = planeHuffman, h
			}
			if p.part = p.zstd.EncodeAll(part, p.part[:0]); len(p.part) < len(stored) {
				method, stored = planeZstd, p.part
			}
			b = binary.LittleEndian.AppendUint32(b, method<<planeMethod|uint32(len(stored)))
			b = append(b, stored...)
		}
	}
	return append(b, body[n*p.element:]...)
}

var huffmanTables = sync.Pool{New: func() any { return new(huff0.Scratch) }}

// expandPlanes undoes StagePlanes: it fills out.
func expandPlanes(out, b []byte) error {
	if len(b) < 2 || b[0] != 1 && b[0] != 2 && b[0] != 4 && b[0] != 8 || b[1] > 1 {
		return fmt.Errorf("planes: %d bytes must begin with the length of elements", len(b))
	}
	element, turned := int(b[0]), b[1] == 1
	b = b[2:]
	n := len(out) / element
	plane := make([]byte, min(planePart, n))
	for place := range element {
		for from := 0; from < n; {
			part := plane[:min(planePart, n-from)]
			if len(b) < 4 {
				return fmt.Errorf("planes: part of plane %d is missing", place)
			}
			head := binary.LittleEndian.Uint32(b)
			length := int(head & (1<<planeMethod - 1))
			if length > len(b)-4 {
				return fmt.Errorf("planes: part of %d bytes must lie in %d", length, len(b)-4)
			}
			if err := expandPart(part, b[4:][:length], head>>planeMethod); err != nil {
				return fmt.Errorf("planes: %w", err)
			}
			b = b[4+length:]
			to := out[from*element+place:]
			for i, v := range part {
				to[i*element] = v
			}
			from += len(part)
		}
	}
	if len(b) != len(out)-n*element {
		return fmt.Errorf("planes: %d bytes after the planes must be %d", len(b), len(out)-n*element)
	}
	copy(out[n*element:], b)
	if turned {
		turn(out[:n*element], element, true)
	}
	return nil
}

// expandPart fills out with a part of a plane.
func expandPart(out, b []byte, method uint32) error {
	var got []byte
	switch method {
	case planeRaw:
		got = b
	case planeZstd:
		d, ok := decoders.Get().(*zstd.Decoder)
		if !ok {
			return fmt.Errorf("zstd: no decoder")
		}
		defer decoders.Put(d)
		var err error
		if got, err = d.DecodeAll(b, out[:0:len(out)]); err != nil {
			return err
		}
	case planeHuffman:
		s := huffmanTables.Get().(*huff0.Scratch)
		defer huffmanTables.Put(s)
		s, rest, err := huff0.ReadTable(b, s)
		if err != nil {
			return err
		}
		if got, err = s.Decoder().Decompress4X(out[:0:len(out)], rest); err != nil {
			return err
		}
	default:
		return fmt.Errorf("method (%d) must be 0 to 2", method)
	}
	if len(got) != len(out) {
		return fmt.Errorf("part (%d bytes) must have %d", len(got), len(out))
	}
	copy(out, got)
	return nil
}
