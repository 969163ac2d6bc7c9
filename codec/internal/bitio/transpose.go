package bitio

// Transpose transposes a square bit matrix: a row is a word, and column 0 its highest bit. It swaps blocks of half the size, then of a
// quarter, and so on (Hacker's Delight, section 7-3).
func Transpose(m *[64]uint64) {
	const (
		mask16 = 0x0000ffff0000ffff
		mask8  = 0x00ff00ff00ff00ff
		mask4  = 0x0f0f0f0f0f0f0f0f
		mask2  = 0x3333333333333333
		mask1  = 0x5555555555555555
	)
	for k := range 16 {
		a, b, c, d := m[k], m[k+16], m[k+32], m[k+48]
		t := (a ^ c>>32) & 0xffffffff
		a, c = a^t, c^t<<32
		t = (b ^ d>>32) & 0xffffffff
		b, d = b^t, d^t<<32
		t = (a ^ b>>16) & mask16
		m[k], m[k+16] = a^t, b^t<<16
		t = (c ^ d>>16) & mask16
		m[k+32], m[k+48] = c^t, d^t<<16
	}
	for from := 0; from < 64; from += 16 {
		sixteen := (*[16]uint64)(m[from : from+16])
		for k := range 4 {
			a, b, c, d := sixteen[k], sixteen[k+4], sixteen[k+8], sixteen[k+12]
			t := (a ^ c>>8) & mask8
			a, c = a^t, c^t<<8
			t = (b ^ d>>8) & mask8
			b, d = b^t, d^t<<8
			t = (a ^ b>>4) & mask4
			sixteen[k], sixteen[k+4] = a^t, b^t<<4
			t = (c ^ d>>4) & mask4
			sixteen[k+8], sixteen[k+12] = c^t, d^t<<4
		}
		for k := 0; k < 16; k += 4 {
			four := (*[4]uint64)(sixteen[k : k+4])
			a, b, c, d := four[0], four[1], four[2], four[3]
			t := (a ^ c>>2) & mask2
			a, c = a^t, c^t<<2
			t = (b ^ d>>2) & mask2
			b, d = b^t, d^t<<2
			t = (a ^ b>>1) & mask1
			four[0], four[1] = a^t, b^t<<1
			t = (c ^ d>>1) & mask1
			four[2], four[3] = c^t, d^t<<1
		}
	}
}
