package bitio

// Swap cuts both words into runs of shift bits, a power of two up to 32. It exchanges the even runs of a, from the lowest on, with the odd
// runs of b.
func Swap(a, b uint64, shift uint) (uint64, uint64) {
	even := ^uint64(0) / (1<<shift + 1) // a constant where the function is inlined
	t := (a ^ b>>shift) & even
	return a ^ t, b ^ t<<shift
}

// Transpose transposes a square bit matrix: a row is a word, and column 0 its highest bit. It swaps blocks of half the size, then of a
// quarter, and so on (Hacker's Delight, section 7-3).
func Transpose(m *[64]uint64) {
	for k := range 16 {
		a, b, c, d := m[k], m[k+16], m[k+32], m[k+48]
		a, c = Swap(a, c, 32)
		b, d = Swap(b, d, 32)
		m[k], m[k+16] = Swap(a, b, 16)
		m[k+32], m[k+48] = Swap(c, d, 16)
	}
	for from := 0; from < 64; from += 16 {
		sixteen := (*[16]uint64)(m[from : from+16])
		for k := range 4 {
			a, b, c, d := sixteen[k], sixteen[k+4], sixteen[k+8], sixteen[k+12]
			a, c = Swap(a, c, 8)
			b, d = Swap(b, d, 8)
			sixteen[k], sixteen[k+4] = Swap(a, b, 4)
			sixteen[k+8], sixteen[k+12] = Swap(c, d, 4)
		}
		for k := 0; k < 16; k += 4 {
			four := (*[4]uint64)(sixteen[k : k+4])
			a, b, c, d := four[0], four[1], four[2], four[3]
			a, c = Swap(a, c, 2)
			b, d = Swap(b, d, 2)
			four[0], four[1] = Swap(a, b, 1)
			four[2], four[3] = Swap(c, d, 1)
		}
	}
}
