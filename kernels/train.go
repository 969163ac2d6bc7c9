package kernels

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/device"
)

// Sample is a training sample and its bit planes, for Planes, Ones and Grow.
type Sample struct {
	// Rows holds Count rows of RowBytes, each padded to whole 32-bit words with zeros, back to back.
	Rows            device.Buffer
	Count, RowBytes int
	// Planes has PlanesBytes. Plane b of word w has bit b of word w of every row. It is PlaneWords words long and begins at word
	// (32 w + b) × PlaneWords. Rows are padded to a multiple of 8 bytes with zeros.
	Planes device.Buffer
}

// RowWords returns the number of 32-bit words of a row in Rows.
func (s *Sample) RowWords() int { return (s.RowBytes + 3) / 4 }

// PlaneWords returns the number of 32-bit words of a plane.
func (s *Sample) PlaneWords() int { return (s.Count + 31) / 32 }

// Words returns the number of 32-bit words of a padded row.
func (s *Sample) Words() int { return (s.RowBytes + 7) / 8 * 2 }

// PlanesBytes returns the size of all planes in bytes.
func (s *Sample) PlanesBytes() int64 { return int64(s.Words()) * 32 * int64(s.PlaneWords()) * 4 }

// Planes transposes the sample.
type Planes struct{ Sample }

// Name implements device.Kernel.
func (k *Planes) Name() string { return "planes" }

// RunHost implements device.Kernel.
func (k *Planes) RunHost(device.Workers) {
	rows, planes := view[uint32](k.Rows), view[uint32](k.Planes)
	clear(planes)
	words := k.RowWords()
	for r := range k.Count {
		for w, x := range rows[r*words:][:words] {
			for ; x != 0; x &= x - 1 {
				planes[(w*32+bits.TrailingZeros32(x))*k.PlaneWords()+r/32] |= 1 << (r % 32)
			}
		}
	}
}

// Ones counts the rows that have each bit set.
type Ones struct {
	Sample
	// Counts receives 32 bits for each bit of the padded row.
	Counts device.Buffer
}

// Name implements device.Kernel.
func (k *Ones) Name() string { return "ones" }

// RunHost implements device.Kernel.
func (k *Ones) RunHost(device.Workers) {
	planes, counts := view[uint32](k.Planes), view[uint32](k.Counts)
	for p := range counts {
		n := 0
		for _, w := range planes[p*k.PlaneWords():][:k.PlaneWords()] {
			n += bits.OnesCount32(w)
		}
		counts[p] = uint32(n)
	}
}

// Grow makes a mask for each chunk. It adds one bit at a time: the bit and value that keep the most rows. The chunk's mask is the one at which
// rows kept × masked bits was largest. Package ibp says why.
type Grow struct {
	Sample
	// Chunk is the chunk length in bytes, 4 or 8.
	Chunk int
	// Alive is scratch memory of AliveBytes. Masks receives, for each chunk, a mask and a bitval of 64 bits each.
	Alive, Masks device.Buffer
}

// Chunks is the number of chunks of a row.
func (k *Grow) Chunks() int { return (k.RowBytes + k.Chunk - 1) / k.Chunk }

// AliveBytes is the size of the scratch memory.
func (k *Grow) AliveBytes() int64 { return int64(k.Chunks()) * int64(k.PlaneWords()) * 4 }

// Name implements device.Kernel.
func (k *Grow) Name() string { return "grow" }

// RunHost implements device.Kernel.
func (k *Grow) RunHost(w device.Workers) {
	w.For(k.Chunks(), 1, func(from, to int) {
		for c := from; c < to; c++ {
			k.growChunk(c)
		}
	})
}

func (k *Grow) growChunk(chunk int) {
	width, words := 8*k.Chunk, k.PlaneWords()
	planes := view[uint32](k.Planes)[chunk*width*words:]
	alive := view[uint32](k.Alive)[chunk*words:][:words]
	for w := range alive {
		alive[w] = ^uint32(0)
	}
	if rest := k.Count % 32; rest != 0 {
		alive[words-1] = 1<<rest - 1
	}
	result := view[uint64](k.Masks)[2*chunk:][:2]
	result[0], result[1] = 0, 0
	var mask, val uint64
	count, best := k.Count, 0
	for n := 1; n <= width; n++ {
		bit, keep, one := -1, -1, false
		for b := range width {
			if mask>>b&1 != 0 {
				continue
			}
			ones := 0
			for w, a := range alive {
				ones += bits.OnesCount32(a & planes[b*words+w])
			}
			if ones > keep {
				bit, keep, one = b, ones, true
			}
			if count-ones > keep {
				bit, keep, one = b, count-ones, false
			}
		}
		mask |= 1 << bit
		flip := ^uint32(0)
		if one {
			val |= 1 << bit
			flip = 0
		}
		if count = keep; count*n > best {
			best, result[0], result[1] = count*n, mask, val
		}
		if count*width <= best {
			return
		}
		for w := range alive {
			alive[w] &= planes[bit*words+w] ^ flip
		}
	}
}
