package kernels

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec/ibp"
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

// search returns package ibp's search of the sample, which does on the host what these kernels do on a GPU. Only its StoredBytes can fail.
func (s *Sample) search() ibp.Search {
	mem, rows := s.Rows.Bytes(), make([]byte, 0, s.Count*s.RowBytes)
	for r := range s.Count {
		rows = append(rows, mem[4*r*s.RowWords():][:s.RowBytes]...)
	}
	search, err := ibp.SearchOf(rows, s.RowBytes)
	if err != nil {
		panic(err)
	}
	return search
}

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
	ones, _ := k.search().Ones()
	counts := view[uint32](k.Counts)
	clear(counts[copy(counts, ones):])
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
func (k *Grow) RunHost(device.Workers) {
	grown, _ := k.search().Grow(k.Chunk)
	masks := k.Masks.Bytes()
	clear(masks)
	for c := range k.Chunks() {
		copy(masks[16*c:], grown.Mask[c*k.Chunk:][:k.Chunk])
		copy(masks[16*c+8:], grown.Bitval[c*k.Chunk:][:k.Chunk])
	}
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
func (k *SampleBytes) RunHost(device.Workers) {
	sums, raw, bytes := view[int64](k.Sums), k.Masks.Bytes(), 4*k.Words()
	row := (k.RowBytes + k.Chunk - 1) / k.Chunk * k.Chunk
	var masks []ibp.Masks
	for at := 0; len(masks) < len(sums); at += 2 * bytes {
		masks = append(masks, ibp.Masks{Mask: raw[at:][:row], Bitval: raw[at+bytes:][:row]})
	}
	stored, err := k.search().StoredBytes(k.Chunk, masks)
	if err != nil {
		panic(err)
	}
	copy(sums, stored)
}
