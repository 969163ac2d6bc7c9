package ndzip

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// decodeGroups writes groups to dst. src must be as long as columnBytes says.
func decodeGroups(dst, src []byte, word, groups int) {
	heads, columns := src[:groups*word], src[groups*word:]
	switch word {
	case 2:
		decodeGroups16(dst[:32*groups], heads, columns)
	case 4:
		decodeGroups32(dst[:128*groups], heads, columns)
	default:
		decodeGroups64(dst[:512*groups], heads, columns)
	}
}

// Decoders load eight bytes for each column or few, and once beyond the last: where columns end sooner, they lie in a copy. They
// take columns without a branch on a head's bits, which are noise.

func decodeGroups16(dst, heads, columns []byte) {
	var end [32 + 8]byte
	last := uint32(0)
	for ; len(heads) >= 2 && len(dst) >= 32; heads, dst = heads[2:], dst[32:] {
		head := binary.LittleEndian.Uint16(heads)
		n := 2 * bits.OnesCount16(head)
		in := columns
		if len(in) < n+8 {
			in = end[:]
			copy(in, columns)
		}
		last = decode16((*[32]byte)(dst), uint(head), unsafe.SliceData(in), last)
		columns = columns[n:]
	}
}

// spread says how as many lanes of 16 bits as four bits of a head have ones, packed into a word's low end, get to the lanes of
// these bits, the highest bit's being the lowest lane: those that have two or three zeros before them move by two lanes,
// then some by one.
type spread struct {
	stay2, move2, stay1, move1 uint64
	bytes                      int // that the columns of these bits take
	_                          [3]uint64
}

var spreads = func() (all [16]spread) {
	for four := range all {
		s, n := &all[four], 0
		for lane := range 4 {
			if four<<lane&8 == 0 {
				continue
			}
			mask := func(lane int) uint64 { return 0xffff << (16 * lane) }
			moves := lane - n
			if moves&2 == 0 {
				s.stay2 |= mask(n)
			} else {
				s.move2 |= mask(n)
			}
			if moves&1 == 0 {
				s.stay1 |= mask(n + moves&2)
			} else {
				s.move1 |= mask(n + moves&2)
			}
			n++
		}
		s.bytes = 2 * n
	}
	return all
}()

// take returns four columns, zero where the head has a zero.
func (s *spread) take(x uint64) uint64 {
	x = x&s.stay2 | x&s.move2<<32
	return x&s.stay1 | x&s.move1<<16
}

// decode16 decodes one group, as the functions below do. They take and return the last word, rotated.
func decode16(dst *[32]byte, head uint, columns *byte, last uint32) uint32 {
	s := &spreads[head>>12&15]
	a, at := s.take(bitio.Load(columns, 0)), s.bytes
	s = &spreads[head>>8&15]
	b := s.take(bitio.Load(columns, at))
	at += s.bytes
	s = &spreads[head>>4&15]
	c := s.take(bitio.Load(columns, at))
	at += s.bytes
	d := spreads[head&15].take(bitio.Load(columns, at))
	a, b, c, d = transpose16(a, b, c, d)
	last = words16((*[8]byte)(dst[:8]), a, last)
	last = words16((*[8]byte)(dst[8:16]), b, last)
	last = words16((*[8]byte)(dst[16:24]), c, last)
	return words16((*[8]byte)(dst[24:]), d, last)
}

// words16 stores four words of which r has the residuals. Of last and of what it returns the low 16 bits count.
func words16(dst *[8]byte, r uint64, last uint32) uint32 {
	r ^= r >> 15 & low16 * 0x7fff
	last += uint32(r)
	binary.LittleEndian.PutUint16(dst[:], bits.RotateLeft16(uint16(last), -1))
	last += uint32(r >> 16)
	binary.LittleEndian.PutUint16(dst[2:], bits.RotateLeft16(uint16(last), -1))
	last += uint32(r >> 32)
	binary.LittleEndian.PutUint16(dst[4:], bits.RotateLeft16(uint16(last), -1))
	last += uint32(r >> 48)
	binary.LittleEndian.PutUint16(dst[6:], bits.RotateLeft16(uint16(last), -1))
	return last
}

func decodeGroups32(dst, heads, columns []byte) {
	var end [4*32 + 8]byte
	last := uint32(0)
	for ; len(heads) >= 4 && len(dst) >= 128; heads, dst = heads[4:], dst[128:] {
		head := binary.LittleEndian.Uint32(heads)
		n := 4 * bits.OnesCount32(head)
		in := columns
		if len(in) < n+8 {
			in = end[:]
			copy(in, columns)
		}
		last = decode32((*[128]byte)(dst), head, unsafe.SliceData(in), last)
		columns = columns[n:]
	}
}

func decode32(dst *[128]byte, head uint32, columns *byte, last uint32) uint32 {
	var m [16]uint64
	at := 0
	for k := range m {
		on, next := int32(head)>>31, int32(head<<1)>>31
		head <<= 2
		x := uint32(bitio.Load(columns, at)) & uint32(on)
		at += int(on & 4)
		y := uint32(bitio.Load(columns, at)) & uint32(next)
		at += int(next & 4)
		m[k] = uint64(x) | uint64(y)<<32
	}
	transpose32(&m)
	for k, r := range m {
		r ^= r >> 31 & 0x100000001 * 0x7fffffff
		x := last + uint32(r)
		last = x + uint32(r>>32)
		binary.LittleEndian.PutUint64(dst[8*k:], uint64(bits.RotateLeft32(x, -1))|uint64(bits.RotateLeft32(last, -1))<<32)
	}
	return last
}

func decodeGroups64(dst, heads, columns []byte) {
	var end [8*64 + 8]byte
	last := uint64(0)
	for ; len(heads) >= 8 && len(dst) >= 512; heads, dst = heads[8:], dst[512:] {
		head := binary.LittleEndian.Uint64(heads)
		n := 8 * bits.OnesCount64(head)
		in := columns
		if len(in) < n+8 {
			in = end[:]
			copy(in, columns)
		}
		last = decode64((*[512]byte)(dst), head, unsafe.SliceData(in), last)
		columns = columns[n:]
	}
}

func decode64(dst *[512]byte, head uint64, columns *byte, last uint64) uint64 {
	var m [64]uint64
	at := 0
	for k := range m {
		on := uint64(int64(head) >> 63)
		head <<= 1
		m[k] = bitio.Load(columns, at) & on
		at += int(on & 8)
	}
	transpose64(&m)
	for k, r := range m {
		last += r ^ uint64(int64(r)>>63)&(1<<63-1)
		binary.LittleEndian.PutUint64(dst[8*k:], bits.RotateLeft64(last, -1))
	}
	return last
}
