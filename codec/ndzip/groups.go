package ndzip

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// encodeGroups writes the heads and columns of the first groups of src to dst and returns their length. dst must have room
// for all columns.
func encodeGroups(dst, src []byte, word, groups int) int {
	end := groups * word
	switch word {
	case 2:
		last := uint16(0)
		for g := range groups {
			end, last = encode16(dst, src[32*g:][:32], 2*g, end, last)
		}
	case 4:
		last := uint32(0)
		for g := range groups {
			end, last = encode32(dst, src[128*g:][:128], 4*g, end, last)
		}
	default:
		last := uint64(0)
		for g := range groups {
			end, last = encode64(dst, src[512*g:][:512], 8*g, end, last)
		}
	}
	return end
}

// columnBytes returns the length of the columns of the given heads.
func columnBytes(heads []byte, word int) int {
	n := 0
	for ; len(heads) >= 8; heads = heads[8:] {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(heads))
	}
	for _, b := range heads {
		n += bits.OnesCount8(b)
	}
	return n * word
}

// Each of the functions below codes one group. It writes the head at dst[head:] and the columns at dst[end:], and returns the
// columns' end, beyond which it may overwrite one word. last is the rotated word before the group; the group's last word is
// returned. Columns are stored without branches on the head's bits, which would be unpredictable.

func encode16(dst, src []byte, head, end int, last uint16) (int, uint16) {
	var m [4]uint64
	src = src[:32]
	all := uint64(0)
	for k := range m {
		x := binary.LittleEndian.Uint64(src[8*k:])
		x = x<<1&^low16 | x>>15&low16
		before := x<<16 | uint64(last)
		last = uint16(x >> 48)
		r := (x | high16) - before&^high16 ^ (x^^before)&high16 // subtraction in each lane
		r ^= r >> 15 & low16 * 0x7fff
		all |= r
		m[k] = r
	}
	all |= all >> 32
	heads := uint16(all | all>>16)
	binary.LittleEndian.PutUint16(dst[head:], heads)
	m[0], m[1], m[2], m[3] = transpose16(m[0], m[1], m[2], m[3])
	for _, x := range m {
		for range 4 {
			binary.LittleEndian.PutUint16(dst[end:], uint16(x))
			end += int(heads >> 15 << 1)
			heads <<= 1
			x >>= 16
		}
	}
	return end, last
}

const (
	low16  = 0x0001000100010001
	high16 = 0x8000800080008000
)

func encode32(dst, src []byte, head, end int, last uint32) (int, uint32) {
	var m [16]uint64
	src = src[:128]
	all := uint32(0)
	for k := range m {
		x := bits.RotateLeft32(binary.LittleEndian.Uint32(src[8*k:]), 1)
		y := bits.RotateLeft32(binary.LittleEndian.Uint32(src[8*k+4:]), 1)
		r, s := x-last, y-x
		last = y
		r ^= uint32(int32(r)>>31) & 0x7fffffff
		s ^= uint32(int32(s)>>31) & 0x7fffffff
		all |= r | s
		m[k] = uint64(r) | uint64(s)<<32
	}
	binary.LittleEndian.PutUint32(dst[head:], all)
	transpose32(&m)
	for _, x := range m {
		binary.LittleEndian.PutUint32(dst[end:], uint32(x))
		end += int(all >> 31 << 2)
		binary.LittleEndian.PutUint32(dst[end:], uint32(x>>32))
		end += int(all >> 30 & 1 << 2)
		all <<= 2
	}
	return end, last
}

func encode64(dst, src []byte, head, end int, last uint64) (int, uint64) {
	var m [64]uint64
	src = src[:512]
	all := uint64(0)
	for k := range m {
		x := bits.RotateLeft64(binary.LittleEndian.Uint64(src[8*k:]), 1)
		r := x - last
		last = x
		r ^= uint64(int64(r)>>63) & (1<<63 - 1)
		all |= r
		m[k] = r
	}
	binary.LittleEndian.PutUint64(dst[head:], all)
	bitio.Transpose(&m)
	for _, x := range m {
		binary.LittleEndian.PutUint64(dst[end:], x)
		end += int(all >> 63 << 3)
		all <<= 1
	}
	return end, last
}
