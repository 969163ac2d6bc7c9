package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

// Encode encodes rows of a table in their places: rows First to First + Count - 1.
type Encode struct {
	// Rows holds rows of Codec.RowBytes() bytes, Stride bytes apart, which is a multiple of 4. slab.TailSlack bytes follow the last row. A
	// row that shrinks is replaced by its stored form; the bytes behind it keep their values.
	Rows         device.Buffer
	Stride       int64
	First, Count int64
	Codec        Codec
	// Bits and Lengths are for the whole table. Either may be empty. Bits has a bit for each row, in 64-bit words, which is set if the row
	// shrinks. Lengths receives each row's stored length in 32 bits, 0 if the row does not shrink.
	Bits, Lengths device.Buffer
	// Totals is an EncodeTotals, to which the rows are added.
	Totals device.Buffer
	// Scratch is scratch memory of EncodeScratchBytes.
	Scratch device.Buffer
	// Blocks is the most blocks that a GPU takes, 0 for as many as it runs at once.
	Blocks int
}

// EncodeScratchBytes is the scratch memory for so many rows: from LongRow on, a row's stored form does not fit a
// multiprocessor's memory.
func EncodeScratchBytes(rowBytes int, rows int64) int64 {
	if rowBytes < abi.LongRow {
		return 0
	}
	return min(rows, maxEncodeBlocks) * longRowScratch(rowBytes)
}

// maxEncodeBlocks bounds the scratch memory of long rows: 132 multiprocessors take two blocks each.
const maxEncodeBlocks = 264

// longRowScratch is what a row takes of which no chunk participates, with the word after it; most for chunks of 4 bytes.
func longRowScratch(rowBytes int) int64 {
	return int64((rowBytes+3)/4*33/8+8+15) &^ 15
}

// EncodeTotals adds up a table's rows as Encode stores them. RawRows counts the rows that do not shrink and stay as they are. StoredBytes is
// the sum of the rows' stored lengths, and SlotBytes that of the slots they need.
type EncodeTotals abi.EncodeTotals

// EncodeTotalsView views a buffer as totals.
func EncodeTotalsView(b device.Buffer) *EncodeTotals { return &view[EncodeTotals](b)[0] }

// Name implements device.Kernel.
func (k *Encode) Name() string { return "encode" }

// RunHost implements device.Kernel.
func (k *Encode) RunHost(w device.Workers) {
	mem, rowBytes, totals := k.Rows.Bytes(), k.Codec.RowBytes(), EncodeTotalsView(k.Totals)
	bits, lengths := view[uint32](k.Bits), view[uint32](k.Lengths)
	w.For(int(k.Count), rowGrain, func(from, to int) {
		dst := make([]byte, k.Codec.EncodeBound())
		var sum EncodeTotals
		for i := from; i < to; i++ {
			row := mem[int64(i)*k.Stride:][:rowBytes]
			n, err := k.Codec.Encode(dst, row)
			if err != nil {
				n = 0
			}
			copy(row, dst[:n])
			r := k.First + int64(i)
			if len(lengths) != 0 {
				lengths[r] = uint32(n)
			}
			if n != 0 && len(bits) != 0 {
				atomic.OrUint32(&bits[r/32], 1<<(r%32)) // a word may be two parts'
			}
			if n == 0 {
				n = rowBytes
				sum.RawRows++
			}
			sum.StoredBytes += uint64(n)
			sum.SlotBytes += uint64(slab.SlotBytes(n))
		}
		atomic.AddUint64(&totals.RawRows, sum.RawRows)
		atomic.AddUint64(&totals.StoredBytes, sum.StoredBytes)
		atomic.AddUint64(&totals.SlotBytes, sum.SlotBytes)
	})
}
