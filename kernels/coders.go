package kernels

import "github.com/tensorcache/tensorcache/codec"

// coder is what there are kernels for beside IBP's: see coder.h.
type coder struct {
	// lanes is the narrowest tile that can decode a row: 8, 16 or 32. The C++ struct says the same.
	lanes int
	// encodes says whether there is an encoder, too.
	encodes bool
}

// coders, by the name that DeviceForm.Kernel has and their modules end in. build.sh compiles them.
var coders = map[string]coder{
	"ibpc2": {8, true},
	"ibpc4": {8, true},
	"ibpc8": {8, true},

	"sleek16": {8, true},
	"sleek32": {8, true},
	"sleek64": {8, true},

	"ndzip16": {16, false},
	"ndzip32": {32, false},
	"ndzip64": {32, false},
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
