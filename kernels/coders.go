package kernels

import (
	"cmp"
	"strconv"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// coder describes the kernels of a KERNELS line (gen/codecs), by which rows of a codec are decoded and encoded: see coder.h. tuning.h says which coders have
// what of it, and why.
type coder struct {
	// lanes is the narrowest tile that can decode a row: 8, 16 or 32. The C++ struct says the same.
	lanes int
	// encodes says whether there is an encoder.
	encodes bool
	// quads is the number of 16-byte pieces of a row that each lane decodes of a hit; 0 is 1.
	quads int
	// fill says that blocks that decode hits have fewer warps where shared memory then leaves room for more of them.
	fill bool
	// ahead is how many hits a tile prefetches to shared memory while it decodes one; 0 is abi.CoderAhead.
	ahead int
	// alone is the row length, in bytes, from which a tile prefetches no hit: that leaves room for more warps. 0 is none.
	alone int
	// wide is the row length, in bytes, up to which a tile has at most 16 lanes.
	wide int
	// bytes says that hits whose symbols are bytes have decoders of their own, RankBytes of coder_rank_bytes.h, with which Find is one launch.
	bytes bool
	// bits says that hits of other symbols have such decoders too, RankBits. Only with bytes.
	bits bool
	// built says that hits have decoders of their own, which put a row together in shared memory before they write it: SparseHits of
	// coder_sparse_hits.h. They decode all rows shorter than abi.LongRow.
	built bool
	// pairs says that hits are decoded two at a time (decode_pairs.cu), by tiles or, of rows of more than 32 quads, by blocks; that long
	// rows are encoded and fetched by blocks (encode_quads.cu, fetch_long.h); that metadata always fit shared memory; and that Find looks up
	// and decodes in one launch.
	pairs bool
	// peers says that lists with rows of other devices have decoders of their own.
	peers bool
	// two says that hits of rows of 17 to 20 quads have kernels with two quads a lane (decode_two.cu). Only with pairs.
	two bool
	// shifts: tables whose chunks need at most this many different shift distances (Params[2]) have pooled kernels of their own. Only with pairs.
	shifts int
	// floats is the sum of the lengths in bytes, 4, 2 and 1, of the floats whose rows pooled batches can have.
	floats int
	// fixed: tables none of whose bits move (Params[2] is 0) have kernels of their own for hits. Only with pairs.
	fixed bool
	// leastDouble is the length in bytes of the shortest rows that are decoded with two quads a lane. 0 means the constant leastDouble.
	leastDouble int
}

// blockThreads are the threads of a block of all kernels that do not say otherwise.
const blockThreads = 256

// raw is the name of the kernels for tables without a codec.
const raw = "raw"

// hitKernel is a kernel that decodes hits. Its name is op, form and shape.
type hitKernel struct {
	// op is "decode", "decodePeers", for lists with rows of other devices, "find", which looks the rows up, or "buddy", for rows of resident tables.
	op string
	// form is empty or names a specialised kernel: "Bytes" (coder.bytes), "Bits" (coder.bits), "Built" (coder.built), "Fixed" (coder.fixed),
	// "Words", for pairs of rows that do not begin at multiples of 8 bytes, "Two" (coder.two), or "TwoFixed".
	form string
	// shape is the lanes that decode a row, "Double" for a warp with two quads a lane, "Wide" for a block with a lane for each quad, or "Long"
	// for rows without a stage.
	shape string
	// lanes is the threads that decode a row.
	lanes int
	// ahead is the rows that a tile has on their way to shared memory: 0, or the number that the kernel is compiled for. Not for pairs.
	ahead int
	fill  bool
	// table is the bytes of shared memory that a block has of its own.
	table int
}

func (h hitKernel) name() string { return h.op + h.form + h.shape }

// hits returns the kernel for hits of such rows. Its op is "decode" where the coder has no kernel of the given op.
func (c coder) hits(row *abi.RowCodec, op string) hitKernel {
	rowBytes := int(row.RowBytes)
	if op == "decodePeers" && !c.peers {
		op = "decode"
	}
	if c.pairs {
		return c.pairHits(row, op)
	}
	h := hitKernel{op: op, lanes: c.tile(rowBytes / max(1, c.quads)), ahead: cmp.Or(c.ahead, abi.CoderAhead), fill: c.fill}
	if rowBytes <= c.wide {
		h.lanes = min(h.lanes, 16)
	}
	if c.built && op != "buddy" { // rows of resident tables are decoded by the coder itself
		h.form, h.ahead = "Built", 1
	}
	if form := rankForm(row); c.bytes && form == "Bytes" || c.bits && form == "Bits" {
		h = hitKernel{op: op, form: form, lanes: c.rankTile(rowBytes), ahead: 1, fill: true, table: 4 * abi.RankTable}
		if form == "Bytes" && row.Params[3]>>8 != 0 && rowBytes <= withBases {
			h.lanes = 8
		}
	} else if op == "find" {
		h.op = "decode"
	}
	if c.alone != 0 && rowBytes >= c.alone {
		h.ahead = 0
	}
	h.shape = strconv.Itoa(h.lanes) // numbers below 100 allocate nothing
	return h
}

// leastDouble is the shortest row, in bytes, that a warp finds and decodes by two quads a lane. With 640 bytes two launches are as fast or, for
// IBP 8, up to 7 % faster. mostDouble is the longest.
const (
	leastDouble = 768
	mostDouble  = 64 * 16
)

// pairHits is hits for pairs.
func (c coder) pairHits(row *abi.RowCodec, op string) hitKernel {
	shape, _, lanes := decodeShape(int(row.RowBytes))
	h := hitKernel{op: op, shape: shape, lanes: lanes}
	switch words, fixed := row.Store == abi.Store4 || row.Store == abi.Store1, c.fixed && row.Params[2] == 0; {
	case shape == "Long":
		if op != "buddy" {
			h.op = "decode"
		}
	case c.two && op != "decodePeers" && twoQuads(int(row.RowBytes)):
		h.form, h.shape, h.lanes = "Two", strconv.Itoa(abi.TwoLanes), abi.TwoLanes
		if fixed {
			h.form = "TwoFixed"
		}
	case words:
		h.form = "Words"
		if op == "decodePeers" {
			h.op = "decode"
		}
	case op != "decodePeers" && fixed:
		h.form = "Fixed"
	}
	if shape == "Wide" && (h.op == "find" || h.op == "buddy") {
		switch n := int(row.RowBytes); {
		case h.form != "Words" && n >= cmp.Or(c.leastDouble, leastDouble) && n <= mostDouble:
			h.shape, h.lanes = "Double", 32
		case h.op == "find":
			h.op = "decode"
		}
	}
	return h
}

// twoQuads says whether a row has two quads for most lanes of a tile of abi.TwoLanes, of which a warp has three. A tile of 32 lanes would leave
// 12 to 15 of them without a quad.
func twoQuads(rowBytes int) bool { return rowBytes > 16*16 && rowBytes <= 2*abi.TwoLanes*16 }

// decodeShape returns, for pairs, the shape of the kernel for rows of that length, the threads of a block, and the lanes that decode a row: the
// row's quads, rounded up to a tile or to whole warps.
func decodeShape(rowBytes int) (shape string, threads, lanes int) {
	quads := (rowBytes + 15) / 16
	switch {
	case rowBytes >= abi.LongRow:
		return "Long", blockThreads, blockThreads
	case quads > 32:
		threads = (quads + 31) &^ 31
		return "Wide", threads, threads
	case quads > 16:
		return "32", blockThreads, 32
	case quads > 8:
		return "16", blockThreads, 16
	}
	return "8", blockThreads, 8
}

// tile returns the lanes that a row of so many bytes takes: one for each of its quads, up to a warp.
func (c coder) tile(rowBytes int) int {
	lanes := c.lanes
	for lanes < 32 && lanes*16 < rowBytes {
		lanes *= 2
	}
	return lanes
}

// serveTile returns the lanes that decode a hit of a small batch.
func (c coder) serveTile(rowBytes int) int {
	switch {
	case c.pairs && rowBytes > 768, !c.pairs && rowBytes/2 > 128, c.lanes > 8: // two quads a lane
		return 32
	case c.pairs && rowBytes > 400: // so many that one scan, of two quads a lane, covers the row
		return 16
	}
	return 8
}

// shareTile returns the lanes that fetch a row of a shared batch: tiles of 16 lanes ask for two rows at once, where a row is no longer.
func (c coder) shareTile(rowBytes int) int {
	if rowBytes <= 256 && c.lanes <= 16 {
		return 16
	}
	return 32
}

// rankForm returns the form of the kernels that decode such hits of rank planes: "Bytes", "Bits" or none. The rows must be whole quads, at
// multiples of 16 bytes. Without bases, symbols must be bytes, rotated, with digits of 2 bits in level 0 and of 1 or 2 bits in level 1. With
// bases, both levels may have 1 or 2 bits. Symbols that are no bytes may be shorter, of elements of 2 bytes, or have 9 bits if bytes hold those
// that digits name.
func rankForm(row *abi.RowCodec) string {
	shape, digits, bases := row.Params[1], row.Params[2], row.Params[3]>>8 != 0
	symbol, levels, level0, level1 := shape>>8&0xff, shape>>16&0xff, digits&15, digits>>4&15
	switch {
	case row.Store != abi.Store16 || levels < 2 || level0 > 2 || level1 > 2:
	case !bases:
		if symbol == 8 && shape&0xff == 1 && level0 == 2 {
			return "Bytes"
		}
	case symbol == 8:
		return "Bytes"
	case symbol == 9 && shape>>24 != 0, symbol < 8 && row.RowBytes == 2*row.Params[0]:
		return "Bits"
	}
	return ""
}

// addsBytes says whether pooled batches of such rows are added up as RankBytes decodes them: rows of one segment whose symbols are bytes.
func (c coder) addsBytes(row *abi.RowCodec) bool {
	return c.bytes && rankForm(row) == "Bytes" && row.RowBytes <= 512
}

// rankTile returns the lanes of RankBytes and RankBits, but for rows with bases (withBases). Measured as a share of the plain gather, with 8, 16 and 32
// lanes, float32 rows on an H200: 0.85, 0.89 and 0.57 at 512 bytes; 0.88, 0.90 and 0.73 at 1024. At 4096 bytes, with 16 and 32 lanes on an H100,
// GB/s: float32 1,380 and 1,296, bfloat16 1,366 and 1,186, float16 1,151 and 1,083. Longer rows do not fit shared memory many times with narrower
// tiles.
func (c coder) rankTile(rowBytes int) int {
	switch {
	case rowBytes <= 256:
		return 8
	case rowBytes <= 4096:
		return 16
	}
	return 32
}

// withBases is the longest row with bases, in bytes, that RankBytes decodes by 8 lanes. At 512 bytes, with 8 and 16 lanes on an H200: float32 0.85 and
// 0.78, bfloat16 0.75 and 0.70; RankBits, float16, 0.56 and 0.61.
const withBases = 512

// coderOf returns the coder of a codec's form, the zero form being that of tables without a codec.
func coderOf(f codec.DeviceForm) (name string, c coder, ok bool) {
	name = f.Kernel
	if name == "" {
		name = raw
	}
	c, ok = coders[name]
	return name, c, ok
}

// Decodes says whether GPUs have kernels for rows of such a codec.
func Decodes(f codec.DeviceForm) bool {
	_, _, ok := coderOf(f)
	return ok && f.Kernel != ""
}

// Encodes says whether GPUs have a kernel that encodes rows of that length.
func Encodes(f codec.DeviceForm, rowBytes int) bool {
	_, c, ok := coderOf(f)
	return ok && c.encodes && (c.pairs || rowBytes < abi.LongRow)
}
