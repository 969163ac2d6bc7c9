package ibp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// thresholds of the paper's sweep: a bit is invariant when it has one value in at least this share of the rows.
var thresholds = [...]float64{0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.00}

// Search is what mask search asks of a sample: see [SearchOf] for the host's. Devices have one of their own, with the same
// answers.
type Search interface {
	codec.DeviceSample
	// Ones returns how many rows have each bit of the row set.
	Ones() ([]uint32, error)
	// Grow returns masks grown chunk by chunk: see planes.grow.
	Grow(chunk int) (Masks, error)
	// StoredBytes returns what the rows take as stored with each of the masks, rows that do not shrink counted raw. Bits
	// past the row are ones in every mask and zeros in every bitval.
	StoredBytes(chunk int, of []Masks) ([]int64, error)
}

// Masks are a mask and bitval for every chunk of a row, padded to whole chunks.
type Masks struct{ Mask, Bitval []byte }

// SearchOf returns the search of the rows that lie back to back in sample.
func SearchOf(sample []byte, rowBytes int) (Search, error) {
	if err := rowcodec.CheckSample("ibp", sample, rowBytes); err != nil {
		return nil, err
	}
	return &search{sample, rowBytes}, nil
}

// Train makes the codec that stores the sample's rows in the fewest bytes, with one of the given chunk lengths: 2, 4 or 8 bytes.
func Train(sample []byte, rowBytes int, chunks ...int) (*Codec, error) {
	s, err := SearchOf(sample, rowBytes)
	if err != nil {
		return nil, err
	}
	return TrainOn(s, chunks...)
}

// TrainOn is Train on a search. It tries the paper's masks, one threshold for the whole table, and masks grown for each chunk on its own;
// neither always wins.
func TrainOn(s Search, chunks ...int) (*Codec, error) {
	byThreshold, err := thresholdMasks(s)
	if err != nil {
		return nil, err
	}
	chunk, best, fewest := 0, Masks{}, int64(0)
	for _, try := range chunks {
		candidates, err := candidatesOf(s, try, byThreshold)
		if err != nil {
			return nil, err
		}
		stored, err := s.StoredBytes(try, candidates)
		if err != nil {
			return nil, err
		}
		for i, n := range stored {
			if chunk == 0 || n < fewest {
				chunk, best, fewest = try, candidates[i], n
			}
		}
	}
	return New(chunk, s.RowBytes(), best.Mask, best.Bitval)
}

// sampleBytes is what the sample's rows take, those that do not shrink counted raw.
func (c *Codec) sampleBytes(sample []byte) int64 {
	var sum int64
	for ; len(sample) > 0; sample = sample[c.rowBytes:] {
		sum += int64(min((c.rowBits(sample[:c.rowBytes])+7)/8, c.rowBytes))
	}
	return sum
}

// rowBits is the length of a row's stored form in bits. It does not branch on which chunks of 2 and 4 bytes participate, which is noise.
func (c *Codec) rowBits(row []byte) int {
	n := c.chunks + c.lead
	row = row[:c.rowBytes]
	for g := range c.groups {
		gr := &c.groups[g]
		var x uint64
		if len(row) >= 8 {
			x = binary.LittleEndian.Uint64(row)
			row = row[8:]
		} else {
			x = bitio.Group(row, 0)
		}
		n += gr.stored(c.chunk, participating(c.chunk, x&gr.mask^gr.val))
	}
	return n
}

// participating returns a bit for each chunk of a group: whether its bits of bad are all zeros.
func participating(chunk int, bad uint64) (part uint64) {
	switch chunk {
	case 8:
		if bad == 0 {
			part = 1
		}
	case 4:
		part = (bad&(1<<32-1)-1)>>63 | (bad>>32-1)>>63<<1
	default:
		for j := range 4 {
			part |= (bad>>(16*j)&0xffff - 1) >> 63 << j
		}
	}
	return part
}

// candidatesOf returns the masks to choose from: grown ones first, then those given, cut to whole chunks.
func candidatesOf(s Search, chunk int, byThreshold []Masks) ([]Masks, error) {
	grown, err := s.Grow(chunk)
	if err != nil {
		return nil, err
	}
	n := len(grown.Mask)
	for i := s.RowBytes(); i < n; i++ {
		grown.Mask[i], grown.Bitval[i] = 0xff, 0
	}
	sets := []Masks{grown}
	for _, m := range byThreshold {
		sets = append(sets, Masks{m.Mask[:n], m.Bitval[:n]})
	}
	return sets, nil
}

// thresholdMasks returns the masks of each threshold, padded to whole chunks of 8 bytes.
func thresholdMasks(s Search) ([]Masks, error) {
	ones, err := s.Ones()
	if err != nil {
		return nil, err
	}
	n, rows := (s.RowBytes()+7)/8*8, s.Rows()
	sets := make([]Masks, len(thresholds))
	var need [len(thresholds)]int
	for i, t := range thresholds {
		sets[i] = Masks{make([]byte, n), make([]byte, n)}
		need[i] = int(math.Ceil(t * float64(rows)))
	}
	for b := range 8 * n {
		set := 0 // bits past the row are zeros in every row
		if b < len(ones) {
			set = int(ones[b])
		}
		bit := byte(1) << (b % 8)
		for i := range sets {
			if max(set, rows-set) < need[i] {
				break // the others need more
			}
			sets[i].Mask[b/8] |= bit
			if set >= need[i] {
				sets[i].Bitval[b/8] |= bit
			}
		}
	}
	return sets, nil
}

// search is the host's Search.
type search struct {
	sample   []byte
	rowBytes int
}

func (s *search) Rows() int     { return len(s.sample) / s.rowBytes }
func (s *search) RowBytes() int { return s.rowBytes }

func (s *search) Ones() ([]uint32, error) {
	ones := make([]uint32, 8*s.rowBytes)
	p := newPlanes(s.Rows(), 64)
	for at := 0; at < s.rowBytes; at += 8 {
		p.load(s.sample, s.rowBytes, at)
		for b := range min(64, len(ones)-8*at) {
			ones[8*at+b] = uint32(p.ones(b))
		}
	}
	return ones, nil
}

func (s *search) Grow(chunk int) (Masks, error) {
	n := (s.rowBytes + chunk - 1) / chunk * chunk
	grown := Masks{make([]byte, n), make([]byte, n)}
	var word [8]byte
	p := newPlanes(s.Rows(), 8*chunk)
	for at := 0; at < n; at += chunk {
		p.load(s.sample, s.rowBytes, at)
		m, v := p.grow()
		binary.LittleEndian.PutUint64(word[:], m)
		copy(grown.Mask[at:at+chunk], word[:])
		binary.LittleEndian.PutUint64(word[:], v)
		copy(grown.Bitval[at:at+chunk], word[:])
	}
	return grown, nil
}

func (s *search) StoredBytes(chunk int, of []Masks) ([]int64, error) {
	stored := make([]int64, len(of))
	for i, m := range of {
		// Thresholds often give the same masks.
		if same := slices.IndexFunc(of[:i], func(o Masks) bool { return bytes.Equal(o.Mask, m.Mask) && bytes.Equal(o.Bitval, m.Bitval) }); same >= 0 {
			stored[i] = stored[same]
			continue
		}
		c, err := New(chunk, s.rowBytes, m.Mask, m.Bitval)
		if err != nil {
			return nil, err
		}
		stored[i] = c.sampleBytes(s.sample)
	}
	return stored, nil
}

// planes is one chunk position of every sampled row, transposed: bit r of plane(b) is bit b of row r's chunk.
type planes struct {
	rows  int
	width int // bits of a chunk
	words []uint64
	alive []uint64
}

func newPlanes(rows, width int) *planes {
	n := (rows + 63) / 64
	return &planes{rows: rows, width: width, words: make([]uint64, width*n), alive: make([]uint64, n)}
}

func (p *planes) plane(b int) []uint64 { return p.words[b*len(p.alive):][:len(p.alive)] }

// load transposes the chunk at byte offset at of every row; bytes beyond the row are zero.
func (p *planes) load(sample []byte, rowBytes, at int) {
	n := min(p.width/8, rowBytes-at)
	mask := uint64(1)<<(8*n-1)<<1 - 1
	var block [64]uint64 // the last row first: Transpose takes the highest bit for the first column
	for w := range p.alive {
		rows := min(64, p.rows-64*w)
		chunk := sample[64*w*rowBytes+at:]
		for i := range rows {
			if len(chunk) >= 8 {
				block[63-i] = binary.LittleEndian.Uint64(chunk) & mask
			} else {
				block[63-i] = bitio.Group(chunk[:n], 0)
			}
			chunk = chunk[min(rowBytes, len(chunk)):]
		}
		clear(block[:64-rows])
		bitio.Transpose(&block)
		for b := range p.width {
			p.words[b*len(p.alive)+w] = block[63-b]
		}
	}
}

func (p *planes) ones(b int) int {
	n := 0
	for _, w := range p.plane(b) {
		n += bits.OnesCount64(w)
	}
	return n
}

// grow adds bits one at a time, each time the bit and value that keep the most rows participating, and returns the mask
// at which participating rows × masked bits was largest. Unlike the paper's counts it sees that bits go together: the
// bits of an exponent are invariant among the rows that already agree on the others.
func (p *planes) grow() (mask, val uint64) {
	count := p.rows
	for w := range p.alive {
		p.alive[w] = ^uint64(0)
	}
	if rest := p.rows % 64; rest != 0 {
		p.alive[len(p.alive)-1] = 1<<rest - 1
	}
	var m, v uint64
	best := 0
	var candidates [64]grown
	left := candidates[:p.width]
	for b := range left {
		left[b] = grown{bit: b, keep: count}
	}
	for n := 1; n <= p.width; n++ {
		next := p.next(left, count)
		bit, flip := left[next].bit, uint64(0)
		if m |= 1 << bit; 2*left[next].ones >= count {
			v |= 1 << bit
		} else {
			flip = ^uint64(0)
		}
		for w, x := range p.plane(bit) {
			p.alive[w] &= x ^ flip
		}
		count = left[next].keep
		left[next] = left[len(left)-1]
		left = left[:len(left)-1]
		if saved := count * n; saved > best {
			best, mask, val = saved, m, v
		}
		if count*p.width <= best {
			break // even all the other bits could not make up for the rows lost
		}
	}
	return mask, val
}

// grown is a bit that a mask may have next: of the rows that participate, ones have it set, and keep would still participate.
type grown struct{ bit, ones, keep int }

// next returns which of the bits that are left keeps the most of so many participating rows: of several the lowest. It sets what it knows
// of each; keep may be too large for those that cannot be the next.
func (p *planes) next(left []grown, count int) int {
	// Rows only leave, so no bit keeps more than it did before. Beginning with the one that kept the most, most need not be counted. (Of 64
	// rows all are, as that takes less time.)
	one := len(p.alive) == 1
	if !one {
		most := 0
		for i := range left {
			if left[i].keep > left[most].keep {
				most = i
			}
		}
		left[0], left[most] = left[most], left[0]
	}
	best := 0
	for i := range left {
		g := &left[i]
		if one {
			g.ones = bits.OnesCount64(p.alive[0] & p.words[g.bit])
		} else if g.keep < best>>16 {
			continue
		} else {
			g.ones = 0
			for w, x := range p.plane(g.bit) {
				g.ones += bits.OnesCount64(p.alive[w] & x)
			}
		}
		g.keep = max(g.ones, count-g.ones)
		best = max(best, g.keep<<16|(63-g.bit)<<8|i)
	}
	return best & 0xff
}

// Families are those of the registry.
var Families = []codec.Family{IBP, IBP2, IBP4, IBP8, IBPC}

// The families of one mask a table. IBP picks the better of IBP4 and IBP8. IBP2 serves tables of 16-bit elements only: the others lose a
// participation bit every 2 bytes for nothing.
var (
	IBP  = oneMask("ibp", 4, 8)
	IBP4 = oneMask("ibp4", 4)
	IBP8 = oneMask("ibp8", 8)
	IBP2 = codec.Family{
		Name: "ibp2", GPURate: codec.RateOnGPU("ibp2"), Unmarshal: unmarshal,
		Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
			if of.Size() != 2 {
				return nil, codec.DTypeError("ibp2", "elements (%v) must have 16 bits", of)
			}
			return rowcodec.AsCodec(Train(sample, rowBytes, 2))
		},
	}
)

// oneMask returns the family of codecs with one mask a table and one of the chunk lengths.
func oneMask(name string, chunks ...int) codec.Family {
	return codec.Family{
		Name: name, Choice: len(chunks) > 1, GPURate: codec.RateOnGPU(fmt.Sprint("ibp", chunks[0])), Unmarshal: unmarshal,
		Train: func(sample []byte, rowBytes int, _ dtype.Type) (codec.Codec, error) {
			return rowcodec.AsCodec(Train(sample, rowBytes, chunks...))
		},
		TrainOn: func(sample codec.DeviceSample, _ dtype.Type) (codec.Codec, error) {
			s, ok := sample.(Search)
			if !ok {
				return nil, fmt.Errorf("ibp: device's sample (%T) must be a Search", sample)
			}
			return rowcodec.AsCodec(TrainOn(s, chunks...))
		},
	}
}
