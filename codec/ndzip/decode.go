package ndzip

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// decodeGroups writes groups to dst. src must be the heads and their columns, as long as columnBytes says.
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

// Decoders load eight bytes for one or a few columns, also beyond the last column. So the last columns are read from a padded
// copy. Decoders have no branches on a head's bits, which would be unpredictable.

// reader reads the columns of one group after the other.
type reader struct {
	columns []byte
	base    *byte // columns[0]
	at      int   // offset of the next group's columns
	safe    int   // largest offset from which a group can be read without the copy
}

// newReader returns a reader of columns. most is the most bytes that a group can have.
func newReader(columns []byte, most int) reader {
	return reader{columns, unsafe.SliceData(columns), 0, len(columns) - most - 8}
}

// fromEnd returns a reader of the remaining columns, copied to end. They are at most most + 7 bytes; end is longer.
func (r reader) fromEnd(end []byte) reader {
	copy(end, r.columns[r.at:])
	return reader{end, unsafe.SliceData(end), 0, len(end)}
}

func decodeGroups16(dst, heads, columns []byte) {
	var end [32 + 16]byte
	r, last := newReader(columns, 32), uint32(0)
	for ; len(heads) >= 2 && len(dst) >= 32; heads, dst = heads[2:], dst[32:] {
		if r.at > r.safe {
			r = r.fromEnd(end[:])
		}
		r.at, last = decode16((*[32]byte)(dst), uint(binary.LittleEndian.Uint16(heads)), r.base, r.at, last)
	}
}

// expansion16 moves the columns of four head bits from the low end of a word, where they are packed, to the 16-bit lanes of
// their bits; the highest bit has the lowest lane. Columns with two or three zero bits before them move by two lanes first,
// then some columns move by one.
type expansion16 struct {
	stay2, move2, stay1, move1 uint64 // masks of the columns that stay or move in each step
	bytes                      int    // bytes of the packed columns
	_                          [3]uint64
}

// expansions16 has the expansion of each value of four head bits.
var expansions16 = func() (all [16]expansion16) {
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

// take returns four columns; those of zero head bits are 0.
func (s *expansion16) take(x uint64) uint64 {
	x = x&s.stay2 | x&s.move2<<32
	return x&s.stay1 | x&s.move1<<16
}

// decode16 decodes one group, like decode32 and decode64 below. at is the offset of the group's columns, last the rotated word
// before the group. It returns the columns' end and the group's last word.
func decode16(dst *[32]byte, head uint, columns *byte, at int, last uint32) (int, uint32) {
	s := &expansions16[head>>12&15]
	a := s.take(bitio.Load(columns, at))
	at += s.bytes
	s = &expansions16[head>>8&15]
	b := s.take(bitio.Load(columns, at))
	at += s.bytes
	var c, d uint64
	if head&0xff == 0xff { // usual, as a mantissa's low bits are rarely all zero
		c, d = bitio.Load(columns, at), bitio.Load(columns, at+8)
		at += 16
	} else {
		s = &expansions16[head>>4&15]
		c = s.take(bitio.Load(columns, at))
		at += s.bytes
		s = &expansions16[head&15]
		d = s.take(bitio.Load(columns, at))
		at += s.bytes
	}
	a, b, c, d = transpose16(a, b, c, d)
	last = words16((*[8]byte)(dst[:8]), a, last)
	last = words16((*[8]byte)(dst[8:16]), b, last)
	last = words16((*[8]byte)(dst[16:24]), c, last)
	return at, words16((*[8]byte)(dst[24:]), d, last)
}

// words16 stores the four words whose residuals are in r. Only the low 16 bits of last and of the result are used.
func words16(dst *[8]byte, r uint64, last uint32) uint32 {
	signs := r & high16
	r ^= signs - signs>>15
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
	var end [4*32 + 16]byte
	r, last := newReader(columns, 4*32), uint32(0)
	for ; len(heads) >= 4 && len(dst) >= 128; heads, dst = heads[4:], dst[128:] {
		if r.at > r.safe {
			r = r.fromEnd(end[:])
		}
		r.at, last = decode32((*[128]byte)(dst), uint(binary.LittleEndian.Uint32(heads)), r.base, r.at, last)
	}
}

// expansion32 is expansion16 for two columns of 32 bits.
type expansion32 struct {
	stay, move uint64
	bytes      int
	_          uint64
}

var expansions32 = [4]expansion32{1: {0, 1<<32 - 1, 4, 0}, 2: {1<<32 - 1, 0, 4, 0}, 3: {^uint64(0), 0, 8, 0}}

// take returns the two columns that end at offset at, and the offset where they begin.
func (p *expansion32) take(columns *byte, at int) (uint64, int) {
	at -= p.bytes
	x := bitio.Load(columns, at)
	return x&p.stay | x&p.move<<32, at
}

func decode32(dst *[128]byte, head uint, columns *byte, at int, last uint32) (int, uint32) {
	// Each quarter of the columns is read from its end, two columns at a time.
	var m [16]uint64
	at0 := at + 4*bits.OnesCount8(uint8(head>>24))
	if head&0xffffff == 0xffffff { // usual, as a mantissa's low bits are rarely all zero
		at = at0
		for k := 3; k >= 0; k-- {
			var a uint64
			a, at0 = expansions32[head>>24&3].take(columns, at0)
			head >>= 2
			m[k], m[k+4], m[k+8], m[k+12] = halve32(a,
				bitio.Load(columns, at+8*k), bitio.Load(columns, at+8*k+32), bitio.Load(columns, at+8*k+64))
		}
		at += 96
	} else {
		at1 := at0 + 4*bits.OnesCount8(uint8(head>>16))
		at2 := at1 + 4*bits.OnesCount8(uint8(head>>8))
		at = at2 + 4*bits.OnesCount8(uint8(head))
		at3 := at
		for k := 3; k >= 0; k-- {
			var a, b, c, d uint64
			a, at0 = expansions32[head>>24&3].take(columns, at0)
			b, at1 = expansions32[head>>16&3].take(columns, at1)
			c, at2 = expansions32[head>>8&3].take(columns, at2)
			d, at3 = expansions32[head&3].take(columns, at3)
			head >>= 2
			m[k], m[k+4], m[k+8], m[k+12] = halve32(a, b, c, d)
		}
	}
	for k := 0; k < 16; k += 4 {
		four := (*[4]uint64)(m[k : k+4])
		to := (*[32]byte)(dst[8*k : 8*k+32])
		a, b, c, d := finish32(four[0], four[1], four[2], four[3])
		last = words32((*[8]byte)(to[:8]), a, last)
		last = words32((*[8]byte)(to[8:16]), b, last)
		last = words32((*[8]byte)(to[16:24]), c, last)
		last = words32((*[8]byte)(to[24:]), d, last)
	}
	return at, last
}

// words32 stores the two words whose residuals are in r, and returns the second.
func words32(dst *[8]byte, r uint64, last uint32) uint32 {
	signs := r & high32
	r ^= signs - signs>>31
	last += uint32(r)
	binary.LittleEndian.PutUint32(dst[:], bits.RotateLeft32(last, -1))
	last += uint32(r >> 32)
	binary.LittleEndian.PutUint32(dst[4:], bits.RotateLeft32(last, -1))
	return last
}

const high32 = 0x8000000080000000

func decodeGroups64(dst, heads, columns []byte) {
	var end [8*64 + 16]byte
	r, last := newReader(columns, 8*64), uint64(0)
	for ; len(heads) >= 8 && len(dst) >= 512; heads, dst = heads[8:], dst[512:] {
		if r.at > r.safe {
			r = r.fromEnd(end[:])
		}
		r.at, last = decode64((*[512]byte)(dst), binary.LittleEndian.Uint64(heads), r.base, r.at, last)
	}
}

func decode64(dst *[512]byte, head uint64, columns *byte, at int, last uint64) (int, uint64) {
	var m [64]uint64
	for k := range m {
		on := uint64(int64(head) >> 63)
		head <<= 1
		m[k] = bitio.Load(columns, at) & on
		at += int(on & 8)
	}
	bitio.Transpose(&m)
	for k, r := range m {
		last += r ^ uint64(int64(r)>>63)&(1<<63-1)
		binary.LittleEndian.PutUint64(dst[8*k:], bits.RotateLeft64(last, -1))
	}
	return at, last
}
