package zipnn

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// planePiece is the number of elements of each half of a region that are decoded before they are joined with the other planes.
const planePiece = 128

// piece holds the values of both halves of a piece, and room for stores beyond them.
type piece [2][planePiece + 8]byte

// decodePlane decodes a region to row if one plane is coded. It decodes from both ends in turns, so that the loads of one overlap
// with the work of the other.
func (c *Codec) decodePlane(row, raw, src []byte, r *region) {
	var values piece
	p := &c.coded[0]
	for next := r.middle; r.first < r.middle; {
		n, m := min(planePiece, r.middle-r.first), min(planePiece, r.last-next)
		p.decode(&values, n, m, src, r)
		c.join(row, raw, values[0][:], r.first, n)
		c.join(row, raw, values[1][:], next, m)
		r.first, next = r.first+n, next+m
	}
}

// decode decodes n values of the first half and m of the second. Lookups give up to maxRun values each, as long as at least so
// many are left.
func (p *codebook) decode(values *piece, n, m int, src []byte, r *region) {
	f, b := r.f, r.b
	up, down := &values[0][0], &values[1][0]
	i, j := 0, 0
	for {
		// One load has the bits of four lookups. None of them may give more values than are left.
		turns := min(4, min(n-i, m-j)>>p.shift)
		if turns <= 0 {
			break
		}
		w, v := above(src, f), bits.Reverse64(below(src, b))
		for range turns {
			e := p.runs[w&(1<<runBits-1)]
			if e != 0 {
				bitio.Store(up, i, uint64(e))
				i += e.values()
				f += e.bits()
				w >>= e.bits()
			} else {
				x, k := p.up(above(src, f))
				values[0][i] = x
				i, f = i+1, f+k
				w = above(src, f)
			}
			e = p.runs[v&(1<<runBits-1)]
			if e != 0 {
				bitio.Store(down, j, uint64(e))
				j += e.values()
				b -= e.bits()
				v >>= e.bits()
			} else {
				x, k := p.down(below(src, b))
				values[1][j] = x
				j, b = j+1, b-k
				v = bits.Reverse64(below(src, b))
			}
		}
	}
	for i < n {
		w := above(src, f)
		if e := p.runs[w&(1<<runBits-1)]; e != 0 && e.values() <= n-i {
			bitio.Store(up, i, uint64(e))
			i, f = i+e.values(), f+e.bits()
			continue
		}
		x, k := p.up(w)
		values[0][i] = x
		i, f = i+1, f+k
	}
	for j < m {
		w := below(src, b)
		if e := p.runs[bits.Reverse64(w)&(1<<runBits-1)]; e != 0 && e.values() <= m-j {
			bitio.Store(down, j, uint64(e))
			j, b = j+e.values(), b-e.bits()
			continue
		}
		x, k := p.down(w)
		values[1][j] = x
		j, b = j+1, b-k
	}
	r.f, r.b = f, b
}

// A lookup of runBits bits gives at most maxRun values.
const (
	runBits = 11
	maxRun  = 7
)

// run is a table entry for runBits bits: up to maxRun values, the first one lowest, and in the highest byte
// number of values << 4 | bits of their codes. It is 0 if the first value is escaped or its code is longer.
type run uint64

func (r run) values() int { return int(r >> 60) }
func (r run) bits() int   { return int(r >> 56 & 15) }

// fillRuns makes the table of runs.
func (b *codebook) fillRuns() {
	// The mean bits of a value, if codes are as frequent as their lengths suggest.
	mean := 0.0
	for _, k := range b.codes {
		if k.Length > 0 {
			mean += float64(k.Length) / float64(uint(1)<<k.Length)
		}
	}
	b.shift = 2
	if mean < runBits/5. {
		b.shift = 3
	}
	most := min(maxRun, 1<<b.shift)
	b.runs = new([1 << runBits]run)
	for i := range b.runs {
		var r run
		used, n := 0, 0
		for n < most {
			e := b.ahead[i>>used]
			if e.symbol() == escape || used+e.length() > runBits {
				break
			}
			r |= run(e.symbol()) << (8 * n)
			used += e.length()
			n++
		}
		if n > 0 {
			b.runs[i] = r | run(n)<<60 | run(used)<<56
		}
	}
}
