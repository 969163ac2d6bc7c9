package kernels

import "github.com/tensorcache/tensorcache/codec"

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
}

// coders, by the name that DeviceForm.Kernel has and their modules end in. build.sh compiles them.
var coders = map[string]coder{
	"ibpc2": {lanes: 8, encodes: true},
	"ibpc4": {lanes: 8, encodes: true},
	"ibpc8": {lanes: 8, encodes: true},

	// H200, GB/s of output by 1, 2 and 4 quads a lane: float32 rows of 512 B 901, 1029, 1152, bfloat16 ones 721, 790, 649, whose lists are
	// twice as long.
	"rank2": {lanes: 8, encodes: true, quads: 2},
	"rank4": {lanes: 8, encodes: true, quads: 4},
	"rank8": {lanes: 8, encodes: true},

	// Only as many lanes decode as a row has halves of regions, about one for 256 bytes; all put the bytes together. Measured on an
	// H200, float32, of the plain gather: 8 quads 0.69 to 0.72, 0.76 and 0.78 at 512, 1024 and 4096 bytes, 4 quads 0.73 and 0.66 at
	// the first two, 16 quads 0.36 at the last; whole blocks 0.58 and 0.61 at 1024 and 4096 bytes.
	"zipnn1": {lanes: 8, quads: 8, fill: true},
	"zipnn2": {lanes: 8, quads: 8, fill: true},
	"zipnn4": {lanes: 8, quads: 8, fill: true},
	"zipnn8": {lanes: 8, quads: 8, fill: true},

	"sleek16": {lanes: 8, encodes: true},
	"sleek32": {lanes: 8, encodes: true},
	"sleek64": {lanes: 8, encodes: true},

	"ndzip16": {lanes: 16},
	"ndzip32": {lanes: 32},
	"ndzip64": {lanes: 32},
}

// Decodes says whether GPUs have kernels for rows of such a codec.
func Decodes(f codec.DeviceForm) bool {
	_, coded := coders[f.Kernel]
	return coded || f.Kernel == "ibp4" || f.Kernel == "ibp8"
}

// Encodes says whether GPUs have a kernel that encodes rows of that length.
func Encodes(f codec.DeviceForm, rowBytes int) bool {
	if c, coded := coders[f.Kernel]; coded {
		return c.encodes && rowBytes < LongRow
	}
	return Decodes(f)
}

// Shares says whether ShareFetch serves rows of that codec and length.
func Shares(c Codec, rowBytes int) bool {
	_, coded := coders[c.Form.Kernel]
	return ShareFits(rowBytes) && !coded
}
