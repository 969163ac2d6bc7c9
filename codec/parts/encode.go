package parts

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec: if all elements are escapes, and the rotated row behind them.
func (c *Codec) EncodeBound() int {
	n := c.fixed
	for i := range c.planes {
		if p := &c.planes[i]; p.Kind == Coded {
			n += p.elements * (p.Digits[1] + p.SymbolBits)
		}
	}
	return max(1, (n+7)/8) + bitio.Slack + c.rowBytes
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	x := dst[:c.EncodeBound()]
	x = x[len(x)-c.rowBytes:]
	copy(x, row[:c.rowBytes])
	c.rotate(x, 1)
	w := bitio.NewWriter(dst, 0)
	w.Put(0, uint(8*c.head))
	n := c.fixed
	for i := range c.planes {
		p := &c.planes[i]
		last := p.at + p.elements*p.stride
		switch p.Kind {
		case Constant:
			for at := p.at; at < last; at += p.stride {
				if x[at] != p.Value {
					return 0, codec.ErrIncompressible
				}
			}
			continue
		case Coded:
			if len(p.Bases) > 0 {
				at := p.at
				for _, base := range p.Bases {
					x[at] -= base
					at += p.stride
				}
			}
			ones := uint8(1)<<p.Digits[0] - 1
			for at := p.at; at < last; at += p.stride {
				code := p.codes[x[at]>>p.rest]
				if code >= 1<<2 {
					code = ones
				}
				w.Put(uint64(code), uint(p.Digits[0]))
			}
		}
		at, mask := p.at, byte(1<<p.rest-1)
		if p.rest == wordRest {
			at = p.putWords(&w, x)
		}
		for ; at < last && p.rest > 0; at += p.stride {
			w.Put(uint64(x[at]&mask), uint(p.rest))
		}
	}
	for i := range c.planes {
		p := &c.planes[i]
		for first := 0; p.Kind == Coded && first < p.elements; first += segment {
			n += p.put(&w, x, first, min(segment, p.elements-first))
		}
	}
	w.Finish()
	size := max(1, (n+7)/8)
	if size >= c.rowBytes || size-c.codes > c.maxField() {
		return 0, codec.ErrIncompressible
	}
	if c.head == 0 && c.fixed == 0 {
		dst[0] = 0
	}
	for i := range c.head {
		dst[i] = byte((size - c.codes) >> (8 * i))
	}
	return size, nil
}

// putWords writes the rests of four bits of all eights of elements, and returns where in x the others begin.
func (p *plane) putWords(w *bitio.Writer, x []byte) int {
	at := p.at
	for range p.elements / 8 {
		var rests uint64
		for i := range 8 {
			rests |= uint64(x[at]&(1<<wordRest-1)) << (8 * i)
			at += p.stride
		}
		w.Put(uint64(p.toWord(rests)), 32)
	}
	return at
}

// put writes level 1 and the escapes of the n elements from first on, and returns their bits.
func (p *plane) put(w *bitio.Writer, x []byte, first, n int) (sum int) {
	var escapes [segment]byte
	count := 0
	digits, ones := uint(p.Digits[1]), uint64(1)<<p.Digits[1]-1
	at := p.at + first*p.stride
	for range n {
		symbol := x[at] >> p.rest
		at += p.stride
		switch code := p.codes[symbol]; code >> 2 {
		case 1:
			w.Put(uint64(code&3), digits)
			sum += int(digits)
		case 2:
			w.Put(ones, digits)
			sum += int(digits)
			escapes[count] = symbol
			count++
		}
	}
	for _, symbol := range escapes[:count] {
		w.Put(uint64(symbol), uint(p.SymbolBits))
	}
	return sum + count*p.SymbolBits
}

// rotate rotates the elements of the parts that say so left by by bits, 1 or -1.
func (c *Codec) rotate(row []byte, by int) {
	for i := range c.parts {
		p := &c.parts[i]
		x := row[:p.Elements*p.ElementBytes]
		row = row[len(x):]
		if p.Rotate == 0 {
			continue
		}
		switch p.ElementBytes {
		case 1:
			for i, b := range x {
				x[i] = bits.RotateLeft8(b, by)
			}
		case 2:
			for ; len(x) > 0; x = x[2:] {
				binary.LittleEndian.PutUint16(x, bits.RotateLeft16(binary.LittleEndian.Uint16(x), by))
			}
		case 4:
			for ; len(x) > 0; x = x[4:] {
				binary.LittleEndian.PutUint32(x, bits.RotateLeft32(binary.LittleEndian.Uint32(x), by))
			}
		default:
			for ; len(x) > 0; x = x[8:] {
				binary.LittleEndian.PutUint64(x, bits.RotateLeft64(binary.LittleEndian.Uint64(x), by))
			}
		}
	}
}
