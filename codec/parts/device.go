package parts

import (
	"encoding/binary"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
)

const (
	devicePlane = 32  // bytes of a plane in device metadata
	scratchLine = 128 // rows lie behind the scratch memory, and are copied there in lines
)

// merging is, for any four digits of 2 bits, then of 1 bit, how a byte permutation picks the symbols that they name, 0 to 3, and those of elements passed
// on, 4 to 7, in their order: four bits each, and 8 × the number of the latter << 16.
var merging = func() (b []byte) {
	for digits := 2; digits >= 1; digits-- {
		ones := 1<<digits - 1
		for i := range 1 << (4 * digits) {
			picks, passed := 0, 0
			for k := range 4 {
				pick := i >> (digits * k) & ones
				if pick == ones {
					pick = 4 + passed
					passed++
				}
				picks |= pick << (4 * k)
			}
			b = binary.LittleEndian.AppendUint32(b, uint32(picks|8*passed<<16))
		}
	}
	return b
}()

// Kinds of coded planes that GPUs have decoders of their own for.
const (
	// deviceShort is a plane of elements of a byte, so few that a word has their digits of a level, without rests, rotation and bases.
	deviceShort = int(Coded) + 1 + iota
	// deviceQuads is a plane of elements of a byte that are rotated, with T = 4 and digits of 2 and 2 bits, in whole quads of the row. float8_e4m3fn
	// trains to that. Device metadata have its symbols and bases for bytes that are not rotated; the bases are even, so they leave the sign as it is.
	deviceQuads
)

// deviceKind returns the kind of a plane in device metadata.
func (p *plane) deviceKind() int {
	odd := func(base byte) bool { return base%2 != 0 }
	switch {
	case p.Kind != Coded || p.stride != 1:
	case p.SymbolBits == 8 && p.turn == 0 && len(p.Bases) == 0 && p.elements*max(p.Digits[0], p.Digits[1]) <= 32:
		return deviceShort
	case p.SymbolBits == 4 && p.turn == 1 && p.Digits == [2]int{2, 2} && p.at%16 == 0 && p.elements%16 == 0 && !slices.ContainsFunc(p.Bases, odd):
		return deviceQuads
	}
	return int(p.Kind)
}

// appendBytes appends symbols or bases as planes of that kind have them.
func appendBytes(b []byte, kind int, x []byte) []byte {
	b = append(b, x...)
	for i := len(b) - len(x); kind == deviceQuads && i < len(b); i++ {
		b[i] /= 2
	}
	return b
}

// DeviceForm implements codec.OnDevice: see kernels/coder_parts.h.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{Kernel: name, Head: max(1, c.head), Scratch: (c.scratch() + scratchLine - 1) &^ (scratchLine - 1)}
	f.Metadata = append(make([]byte, 0, c.MetadataBytes()), merging...)
	bases, i := len(merging)+len(c.planes)*devicePlane, 0
	for _, part := range c.parts {
		for k := range part.Planes {
			p := &c.planes[i]
			i++
			based := 0
			if len(p.Bases) > 0 {
				based = bases
				bases += basesBytes(p)
			}
			kind := p.deviceKind()
			for _, word := range []int{
				p.elements | p.at<<16, kind | int(p.Value)<<8 | p.stride<<16 | k<<24 | part.Rotate<<31,
				p.SymbolBits | p.Digits[0]<<8 | p.Digits[1]<<16, p.digitsAt, p.restAt, based | p.first<<16,
			} {
				f.Metadata = binary.LittleEndian.AppendUint32(f.Metadata, uint32(word))
			}
			f.Metadata = appendBytes(appendBytes(f.Metadata, kind, p.named[0][:]), kind, p.named[1][:])
		}
	}
	for i := range c.planes {
		if p := &c.planes[i]; len(p.Bases) > 0 {
			f.Metadata = append(appendBytes(f.Metadata, p.deviceKind(), p.Bases), make([]byte, basesBytes(p)-len(p.Bases))...)
		}
	}
	f.Params = [codec.Params]uint32{uint32(c.head | len(c.planes)<<16), uint32(c.codes), uint32(c.fixed)}
	return f
}

// basesBytes is the bytes of a plane's bases in device metadata: whole quads.
func basesBytes(p *plane) int { return (len(p.Bases) + 15) &^ 15 }

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 {
	n := len(merging) + len(c.planes)*devicePlane
	for i := range c.planes {
		n += basesBytes(&c.planes[i])
	}
	return int64(n)
}
