package ibp

import (
	"encoding/binary"
	"fmt"
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
// s is the number of steps that the kernels are compiled for, and ends their name: ibp4x3 and ibp4x5 for S = 4, ibp8x4 and ibp8x6 for S = 8.
// For S = 2, s is 4, and masked has 8 bytes for each quad: 64 bytes, not 32, at the block's end.
//
// Tables of several masks, and those of S = 2, whose kernels are a coder's, have the blocks of each set behind 32 bits for each
// set, padded to a quad: its kept bits. Their s is all that the chunk length may need.

const (
	blockBytes = 128 // of the row
	quadBytes  = 16
)

// distances returns by how many distances, other than 0, bits of a chunk move when it is packed, in the chunk that has the most. A bit moves by the number of masked
// bits below it.
func (c *Codec) distances() (most int) {
	width := 8 * c.chunk
	for _, g := range c.groups {
		for at := 0; at < 64; at += width {
			mask, n := g.mask>>at, 0
			for i := 1; i < width; i++ {
				if mask>>i&1 == 0 && mask>>(i-1)&1 == 1 {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// allSteps is what any mask may need, by the chunk length.
var allSteps = map[int]int{2: 4, 4: 5, 8: 6}

// steps returns the number of expansion steps in the device metadata.
func (c *Codec) steps() int {
	few, all := allSteps[c.chunk]-2, allSteps[c.chunk]
	if c.chunk == 2 {
		return all
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

// blocksBytes is the length of the blocks of rows, of so many steps.
func blocksBytes(chunk, rowBytes, steps int) int {
	perBlock := (2+steps)*blockBytes + 64
	if chunk == 2 {
		perBlock += 32
	}
	return (rowBytes + blockBytes - 1) / blockBytes * perBlock
}

// DeviceForm implements codec.OnDevice.
func (c *Codec) DeviceForm() codec.DeviceForm {
	if c.chunk == 2 {
		return coderForm([]*Codec{c}, 0)
	}
	steps := c.steps()
	metadata, keptBits := c.appendBlocks(make([]byte, 0, blocksBytes(c.chunk, c.rowBytes, steps)), steps)
	return codec.DeviceForm{
		Kernel: fmt.Sprintf("ibp%dx%d", c.chunk, steps), Metadata: metadata, Head: min(c.rowBytes, (c.chunks+31)/32*4),
		Params: [codec.Params]uint32{uint32(c.chunks), uint32(keptBits), uint32(c.distances())},
	}
}

// MaxDeviceMetadata is the device metadata, in bytes, that a codec with one mask has at most for rows of that length.
func MaxDeviceMetadata(rowBytes int) int64 { return int64(blocksBytes(8, rowBytes, allSteps[8])) }

// coderBytes is the device metadata of so many sets.
func coderBytes(chunk, rowBytes, sets int) int {
	return (4*sets+quadBytes-1)/quadBytes*quadBytes + sets*blocksBytes(chunk, rowBytes, allSteps[chunk])
}

// coderForm is the device form of a codec of several sets, or of one of S = 2.
func coderForm(sets []*Codec, lead int) codec.DeviceForm {
	c := sets[0]
	head := (4*len(sets) + quadBytes - 1) / quadBytes * quadBytes
	b := make([]byte, head, coderBytes(c.chunk, c.rowBytes, len(sets)))
	for i, set := range sets {
		var kept int
		b, kept = set.appendBlocks(b, allSteps[c.chunk])
		binary.LittleEndian.PutUint32(b[4*i:], uint32(kept))
	}
	return codec.DeviceForm{
		Kernel: fmt.Sprintf("ibpc%d", c.chunk), Metadata: b, Head: min(c.rowBytes, (c.chunks+lead+31)/32*4),
		Params: [codec.Params]uint32{uint32(c.chunks), uint32(lead), uint32(len(sets)), uint32(blocksBytes(c.chunk, c.rowBytes, allSteps[c.chunk]))},
	}
}

// appendBlocks appends the blocks of so many steps, and returns what a row's payload takes when all chunks participate.
func (c *Codec) appendBlocks(b []byte, steps int) (_ []byte, keptBits int) {
	perQuad := quadBytes / c.chunk // chunks
	for at := 0; at < c.rowBytes; at += blockBytes {
		var planes [8][blockBytes]byte // mask, bitval, moves
		var kept [blockBytes / quadBytes]uint32
		masked := make([]byte, blockBytes/quadBytes*max(4, perQuad))
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
				kept[quad] = uint32(keptBits)
			}
			for j := range 8 / c.chunk {
				if (at+8*i)/c.chunk+j >= c.chunks {
					continue
				}
				width := 8 * c.chunk
				n := bits.OnesCount64(g.mask >> (width * j) << (64 - width))
				keptBits += width - n
				masked[quad*max(4, perQuad)+i%2*(8/c.chunk)+j] = byte(n)
			}
		}
		for p := range 2 + steps {
			b = append(b, planes[p][:]...)
		}
		for _, k := range kept {
			b = binary.LittleEndian.AppendUint32(b, k)
		}
		b = append(b, masked...)
	}
	return b, keptBits
}
