package npy

import (
	"cmp"
	"hash/crc32"
	"slices"
	"sync"
)

// sums collects the CRC-32 of parts of some data. It is safe for concurrent use.
type sums struct {
	mu    sync.Mutex
	parts []part // ascending; those that touch are joined
}

// part is the CRC of bytes [from, to).
type part struct {
	from, to int64
	crc      uint32
}

// add adds the CRC of bytes [from, to) of size. With the last missing part, it returns the CRC of all bytes and true. A part that overlaps
// earlier ones is ignored.
func (s *sums) add(from, to int64, crc uint32, size int64) (whole uint32, all bool) {
	if from == to {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// i is the first part that begins at or after from.
	i, _ := slices.BinarySearchFunc(s.parts, from, func(p part, from int64) int { return cmp.Compare(p.from, from) })
	if i > 0 && s.parts[i-1].to > from || i < len(s.parts) && s.parts[i].from < to {
		return 0, false
	}
	s.parts = slices.Insert(s.parts, i, part{from, to, crc})
	s.join(i)
	if i > 0 {
		s.join(i - 1)
	}
	if first := s.parts[0]; first.from == 0 && first.to == size {
		return first.crc, true
	}
	return 0, false
}

// join joins part i with the next one if they touch.
func (s *sums) join(i int) {
	if i+1 == len(s.parts) || s.parts[i].to != s.parts[i+1].from {
		return
	}
	a, b := s.parts[i], s.parts[i+1]
	s.parts[i] = part{a.from, b.to, combine(a.crc, b.crc, b.to-b.from)}
	s.parts = slices.Delete(s.parts, i+1, i+2)
}

// combine returns the CRC-32 of two pieces of data one after the other, from the CRC of each and the bytes of the second.
//
// A CRC is a remainder of polynomials over GF(2): data that are followed by n bytes have their CRC multiplied by x^8n.
func combine(first, second uint32, n int64) uint32 {
	power := uint32(1) << 31  // the polynomial 1; coefficients are in reversed order
	square := uint32(1) << 23 // x^8, then x^16, x^32, ...
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(power, square)
		}
		square = multiply(square, square)
	}
	return multiply(first, power) ^ second
}

// multiply multiplies two polynomials modulo that of CRC-32.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.IEEE*(b&1)
	}
	return product
}
