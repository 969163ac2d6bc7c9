package ndzip

// Square bit matrices are transposed by swapping blocks of half the size, then of a quarter, and so on (Hacker's Delight,
// section 7-3). Column 0 is the highest bit of a row. A 64-bit word holds four rows of 16 bits or two of 32, the first one
// lowest.

const (
	mask16 = 0x0000ffff0000ffff
	mask8  = 0x00ff00ff00ff00ff
	mask4  = 0x0f0f0f0f0f0f0f0f
	mask2  = 0x3333333333333333
	mask1  = 0x5555555555555555
)

func transpose16(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	t := (a ^ c>>8) & mask8
	a, c = a^t, c^t<<8
	t = (b ^ d>>8) & mask8
	b, d = b^t, d^t<<8
	t = (a ^ b>>4) & mask4
	a, b = a^t, b^t<<4
	t = (c ^ d>>4) & mask4
	c, d = c^t, d^t<<4
	return within16(a), within16(b), within16(c), within16(d)
}

// within16 does the steps of 2 and 1, whose rows lie in one word. It multiplies instead of shifting, because processors have
// more throughput for that.
func within16(x uint64) uint64 {
	t := (x ^ x>>34) & 0x33333333
	x ^= t * (1<<34 + 1)
	t = (x ^ x>>17) & 0x0000555500005555
	return x ^ t*(1<<17+1)
}

func transpose32(m *[16]uint64) {
	for k := range 4 {
		m[k], m[k+4], m[k+8], m[k+12] = halve32(m[k], m[k+4], m[k+8], m[k+12])
	}
	for k := 0; k < 16; k += 4 {
		four := (*[4]uint64)(m[k : k+4])
		four[0], four[1], four[2], four[3] = finish32(four[0], four[1], four[2], four[3])
	}
}

// halve32 does the steps of 16 and 8 on words that are four apart. finish32 does those of 4, 2 and 1 on four consecutive words.
func halve32(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	t := (a ^ c>>16) & mask16
	a, c = a^t, c^t<<16
	t = (b ^ d>>16) & mask16
	b, d = b^t, d^t<<16
	t = (a ^ b>>8) & mask8
	a, b = a^t, b^t<<8
	t = (c ^ d>>8) & mask8
	return a, b, c ^ t, d ^ t<<8
}

func finish32(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	t := (a ^ c>>4) & mask4
	a, c = a^t, c^t<<4
	t = (b ^ d>>4) & mask4
	b, d = b^t, d^t<<4
	t = (a ^ b>>2) & mask2
	a, b = a^t, b^t<<2
	t = (c ^ d>>2) & mask2
	c, d = c^t, d^t<<2
	return within32(a), within32(b), within32(c), within32(d)
}

// within32 does the step of 1.
func within32(x uint64) uint64 {
	t := (x ^ x>>33) & 0x55555555
	return x ^ t*(1<<33+1)
}
