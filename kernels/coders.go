package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// coder is what there are kernels for beside IBP's: see coder.h.
type coder struct {
	// lanes is the narrowest tile that can decode a row: 8, 16 or 32. The C++ struct says the same.
	lanes int
	// encodes says whether there is an encoder, too.
	encodes bool
	// quads is how many 16-byte pieces of a row a lane is given when hits are decoded; 0 is 1.
	quads int
	// fill says whether blocks that decode hits have fewer warps where shared memory then leaves room for more of them.
	fill bool
	// one is the row length from which a tile has one row on its way to shared memory while it decodes a hit, instead of CoderAhead: that
	// leaves room for more warps. 0 is none.
	one int
	// bytes says whether hits have decoders of their own where symbols are bytes: RankBytes of coder_rank_bytes.h.
	bytes bool
}

// coders, by the name that DeviceForm.Kernel has and their modules end in. build.sh compiles them.
var coders = map[string]coder{
	"ibpc2": {lanes: 8, encodes: true},
	"ibpc4": {lanes: 8, encodes: true},
	"ibpc8": {lanes: 8, encodes: true},

	// H200, GB/s of output by 1, 2 and 4 quads a lane, where RankBytes does not serve: float32 rows of 512 B 901, 1029, 1152, bfloat16 ones 721,
	// 790, 649, whose lists are twice as long.
	"rank2": {lanes: 8, encodes: true, quads: 2, bytes: true},
	"rank4": {lanes: 8, encodes: true, quads: 4, bytes: true},
	"rank8": {lanes: 8, encodes: true},

	// Only as many lanes decode as a row has halves of regions, about one for 256 bytes; all put the bytes together. Measured on an
	// H200, float32, of the plain gather: 8 quads 0.69 to 0.72, 0.76 and 0.78 at 512, 1024 and 4096 bytes, 4 quads 0.73 and 0.66 at
	// the first two, 16 quads 0.36 at the last; whole blocks 0.58 and 0.61 at 1024 and 4096 bytes. With one row on its way 0.73, 0.83 and
	// 0.92 instead of 0.75, 0.77 and 0.78.
	"zipnn1": {lanes: 8, quads: 8, fill: true, one: 1024},
	"zipnn2": {lanes: 8, quads: 8, fill: true, one: 1024},
	"zipnn4": {lanes: 8, quads: 8, fill: true, one: 1024},
	"zipnn8": {lanes: 8, quads: 8, fill: true, one: 1024},

	"sleek16": {lanes: 8, encodes: true},
	"sleek32": {lanes: 8, encodes: true},
	"sleek64": {lanes: 8, encodes: true},

	"ndzip16": {lanes: 16},
	"ndzip32": {lanes: 32},
	"ndzip64": {lanes: 32},
}

// hitDecoder is a kernel that decodes hits: its tiles' lanes, and the rows that a tile has on their way to shared memory. hitKernels lists those that
// there are. A block has table bytes of shared memory of its own.
type hitDecoder struct {
	kind         string
	lanes, ahead int
	fill         bool
	table        int
}

func (d hitDecoder) kernel() string { return fmt.Sprint(d.kind, d.lanes) }

// hits returns the kernel for hits of such rows.
func (c coder) hits(row *abi.RowCodec) hitDecoder {
	rowBytes := int(row.RowBytes)
	d := hitDecoder{kind: "decode", lanes: c.tile(rowBytes / max(1, c.quads)), ahead: abi.CoderAhead, fill: c.fill}
	if c.one != 0 && rowBytes >= c.one {
		d.kind, d.ahead = "decodeOne", 1
	}
	if c.bytes && rankBytes(row) {
		d = hitDecoder{"decodeBytes", rankBytesTile(rowBytes), 1, true, 4 * abi.RankTable}
	}
	return d
}

// hitKernels returns the names of all that hits can return.
func (c coder) hitKernels() (all []string) {
	for lanes := c.lanes; lanes <= 32; lanes *= 2 {
		if lanes <= c.tile(c.one/max(1, c.quads)) || c.one == 0 {
			all = append(all, hitDecoder{kind: "decode", lanes: lanes}.kernel())
		}
		if c.one != 0 && lanes >= c.tile(c.one/max(1, c.quads)) {
			all = append(all, hitDecoder{kind: "decodeOne", lanes: lanes}.kernel())
		}
		if c.bytes {
			all = append(all, hitDecoder{kind: "decodeBytes", lanes: lanes}.kernel())
		}
	}
	return all
}

// tile returns the lanes that a row of so many bytes takes: one for each of its quads, up to a warp.
func (c coder) tile(rowBytes int) int {
	lanes := c.lanes
	for lanes < 32 && lanes*16 < rowBytes {
		lanes *= 2
	}
	return lanes
}

// rankBytes says whether RankBytes decodes such rows of rank planes: they are whole quads, stored so, of elements rotated whose symbols are
// bytes, with digits of 2 bits in level 0 and of 1 or 2 in level 1.
func rankBytes(row *abi.RowCodec) bool {
	shape, digits := row.Params[1], row.Params[2]
	return row.Store == abi.Store16 && shape&0xffff == 8<<8|1 && shape>>16 >= 2 && digits&15 == 2 && (digits>>4&15 == 1 || digits>>4&15 == 2)
}

// rankBytesTile returns the lanes of RankBytes. Measured on an H200, of the plain gather, by 8, 16 and 32 lanes: float32 0.85, 0.89 and 0.57 at 512
// bytes, 0.88, 0.90 and 0.73 at 1024, 0.41, 0.67 and 0.82 at 4096, where narrower tiles leave shared memory for few.
func rankBytesTile(rowBytes int) int {
	switch {
	case rowBytes <= 256:
		return 8
	case rowBytes <= 2048:
		return 16
	}
	return 32
}

// Decodes says whether GPUs have kernels for rows of such a codec.
func Decodes(f codec.DeviceForm) bool {
	_, coded := coders[f.Kernel]
	return coded || f.Kernel == "ibp4" || f.Kernel == "ibp8"
}

// Encodes says whether GPUs have a kernel that encodes rows of that length.
func Encodes(f codec.DeviceForm, rowBytes int) bool {
	if c, coded := coders[f.Kernel]; coded {
		return c.encodes && rowBytes < abi.LongRow
	}
	return Decodes(f)
}

// Shares reports whether ShareFetch serves rows of this codec that are rowBytes long.
func (c *Codec) Shares(rowBytes int) bool {
	_, coded := coders[c.Form.Kernel]
	return rowBytes <= MaxShareRow && !coded
}
