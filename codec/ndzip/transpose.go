package ndzip

import "github.com/tensorcache/tensorcache/codec/internal/bitio"

// Square bit matrices are transposed by swapping blocks of half the size, then of a quarter, and so on (Hacker's Delight,
// section 7-3). Column 0 is the highest bit of a row. A 64-bit word holds four rows of 16 bits or two of 32, the first one
// lowest.

func transpose16(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a, c = bitio.Swap(a, c, 8)
	b, d = bitio.Swap(b, d, 8)
	a, b = bitio.Swap(a, b, 4)
	c, d = bitio.Swap(c, d, 4)
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
	a, c = bitio.Swap(a, c, 16)
	b, d = bitio.Swap(b, d, 16)
	a, b = bitio.Swap(a, b, 8)
	c, d = bitio.Swap(c, d, 8)
	return a, b, c, d
}

func finish32(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a, c = bitio.Swap(a, c, 4)
	b, d = bitio.Swap(b, d, 4)
	a, b = bitio.Swap(a, b, 2)
	c, d = bitio.Swap(c, d, 2)
	return within32(a), within32(b), within32(c), within32(d)
}

// within32 does the step of 1.
func within32(x uint64) uint64 {
	t := (x ^ x>>33) & 0x55555555
	return x ^ t*(1<<33+1)
}
