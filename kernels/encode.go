package kernels

import (
	"math/bits"
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

// SampleBytes sums what a sample's rows would take as stored with each of some masks, rows that do not shrink counted raw.
type SampleBytes struct {
	Sample
	// Chunk is the chunk length in bytes, 4 or 8.
	Chunk int
	// Masks has a mask and a bitval of Words() 32-bit words for each of the masks, at most MaxMasks: ones and zeros in the
	// padding of the row's last chunk, zeros past it.
	Masks device.Buffer
	// Sums receives the bytes in 64 bits for each; they must be zeroed before.
	Sums device.Buffer
}

// MasksBytes is the size of so many masks.
func (s *Sample) MasksBytes(n int) int64 { return int64(n) * 2 * int64(s.Words()) * 4 }

// Name implements device.Kernel.
func (k *SampleBytes) Name() string { return "sample-bytes" }

// RunHost implements device.Kernel.
func (k *SampleBytes) RunHost(w device.Workers) {
	rows, masks, sums := view[uint32](k.Rows), view[uint32](k.Masks), view[uint64](k.Sums)
	words, rowWords, chunkWords := k.Words(), k.RowWords(), k.Chunk/4
	chunks := (k.RowBytes + k.Chunk - 1) / k.Chunk
	w.For(k.Count, rowGrain, func(from, to int) {
		for m := range sums {
			mask, bitval := masks[2*m*words:][:words], masks[(2*m+1)*words:][:words]
			sum := uint64(0)
			for _, row := range split(rows[from*rowWords:to*rowWords], rowWords) {
				n := chunks * (8*k.Chunk + 1)
				for c := range chunks {
					bad, masked := uint32(0), 0
					for j := c * chunkWords; j < (c+1)*chunkWords; j++ {
						x := uint32(0)
						if j < rowWords {
							x = row[j]
						}
						bad |= x&mask[j] ^ bitval[j]
						masked += bits.OnesCount32(mask[j])
					}
					if bad == 0 {
						n -= masked
					}
				}
				sum += uint64(min((n+7)/8, k.RowBytes))
			}
			atomic.AddUint64(&sums[m], sum)
		}
	})
}

// split cuts words into rows.
func split(words []uint32, n int) (rows [][]uint32) {
	for ; len(words) > 0; words = words[n:] {
		rows = append(rows, words[:n])
	}
	return rows
}
