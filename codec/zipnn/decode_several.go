package zipnn

// pieceSeveral is pieceOne where several planes are coded.
const pieceSeveral = 32

// decodeSeveral is decodeOne where several planes are coded.
func (c *Codec) decodeSeveral(row, raw, src []byte, r *region) {
	var up, down [8 * pieceSeveral]byte
	for next := r.middle; r.first < r.middle; {
		n, m := min(pieceSeveral, r.middle-r.first), min(pieceSeveral, r.last-next)
		c.decodeBoth(&up, &down, m, src, r)
		if m < n {
			c.decodeUp(&up, m, src, r)
		}
		c.join(row, raw, up[:], r.first, n)
		c.join(row, raw, down[:], next, m)
		r.first, next = r.first+n, next+m
	}
}

// decodeBoth decodes n elements of either half.
func (c *Codec) decodeBoth(up, down *[8 * pieceSeveral]byte, n int, src []byte, r *region) {
	f, b := r.f, r.b
	for i := range n {
		w, v := above(src, f), below(src, b)
		at := uint(i)
		for k := range c.coded {
			p := c.coded[k].codebook
			if k == 4 { // a load has the bits of four codes, the last one's escaped value included
				w, v = above(src, f), below(src, b)
			}
			e := p.ahead[w&(1<<maxCode-1)]
			up[at%(8*pieceSeveral)] = byte(e)
			f += e.length()
			w >>= e.length() & 15
			if e.symbol() == escape {
				up[at%(8*pieceSeveral)] = byte(w)
				f += 8
				w = above(src, f)
			}
			e = p.back[v>>(64-maxCode)]
			down[at%(8*pieceSeveral)] = byte(e)
			b -= e.length()
			v <<= e.length() & 15
			if e.symbol() == escape {
				down[at%(8*pieceSeveral)] = byte(v >> 56)
				b -= 8
				v = below(src, b)
			}
			at += pieceSeveral
		}
	}
	r.f, r.b = f, b
}

// decodeUp decodes one element, to the i'th places of up.
func (c *Codec) decodeUp(up *[8 * pieceSeveral]byte, i int, src []byte, r *region) {
	for k := range c.coded {
		x, n := c.coded[k].up(above(src, r.f))
		up[k*pieceSeveral+i] = x
		r.f += n
	}
}
