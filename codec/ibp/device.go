package ibp

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
)

// The device metadata has a block for every 128 bytes of the row, which are eight quads of 16 bytes:
//
//	0      128      256                   128·(2+s)       +32          +64
//	+------+--------+---------+-----+-----+---------------+------------+
//	| mask | bitval | moves 0 | ... | s-1 | kept before   | masked     |
//	+------+--------+---------+-----+-----+---------------+------------+
//
// mask, bitval and the moves are as in the group, in the row's order. Kept before is, for each quad, the kept bits of all
// chunks before it, 32 bits; masked the masked bits of each of its chunks, a byte each, 0 for chunks past the row's last.
// s is the number of steps that the kernels are compiled for: 3 or 5 for S = 4, 4 or 6 for S = 8.
const (
	blockBytes = 128 // of the row
	quadBytes  = 16
)

// still says that no bit moves when a chunk is packed.
func (c *Codec) still() bool {
	for i := range c.groups {
		if c.groups[i].moves != [6]uint64{} {
			return false
		}
	}
	return true
}

// steps returns the number of expansion steps in the device metadata.
func (c *Codec) steps() int {
	few, all := 3, 5
	if c.chunk == 8 {
		few, all = 4, 6
	}
	for i := range c.groups {
		for _, m := range c.groups[i].moves[few:] {
			if m != 0 {
				return all
			}
		}
	}
	return few
}

func (c *Codec) deviceBytes() int {
	return (c.rowBytes + blockBytes - 1) / blockBytes * ((2+c.steps())*blockBytes + 64)
}

// DeviceForm implements codec.OnDevice.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{
		Kernel: c.name, Metadata: make([]byte, 0, c.deviceBytes()), Chunk: c.chunk, Steps: c.steps(), Chunks: c.chunks, Still: c.still(),
	}
	for at := 0; at < c.rowBytes; at += blockBytes {
		var planes [8][blockBytes]byte // mask, bitval, moves
		var kept, masked [blockBytes / quadBytes]uint32
		for i := range blockBytes / 8 {
			g := group{mask: ^uint64(0)}
			if at/8+i < len(c.groups) {
				g = c.groups[at/8+i]
			}
			for p, word := range [...]uint64{g.mask, g.val, g.moves[0], g.moves[1], g.moves[2], g.moves[3], g.moves[4], g.moves[5]} {
				binary.LittleEndian.PutUint64(planes[p][8*i:], word)
			}
			quad := i / 2
			if i%2 == 0 {
				kept[quad] = uint32(f.KeptBits)
			}
			for j := range 8 / c.chunk {
				chunk := (at+8*i)/c.chunk + j
				if chunk >= c.chunks {
					continue
				}
				n := bits.OnesCount64(g.mask)
				if c.chunk == 4 {
					n = bits.OnesCount32(uint32(g.mask >> (32 * j)))
				}
				f.KeptBits += 8*c.chunk - n
				masked[quad] |= uint32(n) << (8 * (i%2*(8/c.chunk) + j))
			}
		}
		for p := range 2 + f.Steps {
			f.Metadata = append(f.Metadata, planes[p][:]...)
		}
		for _, words := range [...][8]uint32{kept, masked} {
			for _, w := range words {
				f.Metadata = binary.LittleEndian.AppendUint32(f.Metadata, w)
			}
		}
	}
	return f
}
