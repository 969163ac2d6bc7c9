package zipnn

// planesPiece is planePiece for two or more coded planes.
const planesPiece = 32

// decodePlanes is decodePlane for two or more coded planes.
func (c *Codec) decodePlanes(row, raw, src []byte, r *region) {
	var up, down [8 * planesPiece]byte
	for next := r.middle; r.first < r.middle; {
		n, m := min(planesPiece, r.middle-r.first), min(planesPiece, r.last-next)
		c.decodeBoth(&up, &down, m, src, r)
		if m < n {
			c.decodeUp(&up, m, src, r)
		}
		c.join(row, raw, up[:], r.first, n)
		c.join(row, raw, down[:], next, m)
		r.first, next = r.first+n, next+m
	}
}

// decodeBoth decodes n elements of each half.
func (c *Codec) decodeBoth(up, down *[8 * planesPiece]byte, n int, src []byte, r *region) {
	f, b := r.f, r.b
	for i := range n {
		w, v := above(src, f), below(src, b)
		at := uint(i)
		for k := range c.coded {
			p := c.coded[k].codebook
			if k == 4 { // a load has the bits of four codes
				w, v = above(src, f), below(src, b)
			}
			e := p.ahead[w&(1<<maxCode-1)]
			up[at%(8*planesPiece)] = byte(e)
			f += e.length()
			w >>= e.length() & 15
			if e.symbol() == escape {
				up[at%(8*planesPiece)] = byte(w)
				f += 8
				w = above(src, f)
			}
			e = p.back[v>>(64-maxCode)]
			down[at%(8*planesPiece)] = byte(e)
			b -= e.length()
			v <<= e.length() & 15
			if e.symbol() == escape {
				down[at%(8*planesPiece)] = byte(v >> 56)
				b -= 8
				v = below(src, b)
			}
			at += planesPiece
		}
	}
	r.f, r.b = f, b
}

// decodeUp decodes one element of the first half, to index i of each plane in up.
func (c *Codec) decodeUp(up *[8 * planesPiece]byte, i int, src []byte, r *region) {
	for k := range c.coded {
		x, n := c.coded[k].up(above(src, r.f))
		up[k*planesPiece+i] = x
		r.f += n
	}
}
