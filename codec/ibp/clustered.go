package ibp

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Clustered is IBP with several masks for a table, for data with local trends: each row is stored by the mask that makes it
// shortest, whose number, in ⌈log₂ k⌉ bits, lies between its participation bits and its payload. It implements [codec.Codec].
type Clustered struct {
	sets []*Codec
	lead int // bits of a set's number
}

// MaxClusters is the most masks that a table can have.
const MaxClusters = 256

// clusteredOf returns the codec of 1 to MaxClusters codecs of one mask, which it takes over.
func clusteredOf(sets []*Codec) *Clustered {
	c := &Clustered{sets: sets, lead: bits.Len(uint(len(sets) - 1))}
	for i, set := range sets {
		set.name, set.index, set.lead = "ibpc", uint64(i), c.lead
	}
	return c
}

// Name implements codec.Codec: "ibpc".
func (c *Clustered) Name() string { return "ibpc" }

// RowBytes implements codec.Codec.
func (c *Clustered) RowBytes() int { return c.sets[0].rowBytes }

// EncodeBound implements codec.Codec.
func (c *Clustered) EncodeBound() int { return c.sets[0].EncodeBound() }

// Encode implements codec.Codec.
func (c *Clustered) Encode(dst, row []byte) (int, error) {
	set, n := c.best(row[:c.RowBytes()])
	if n >= c.RowBytes() {
		return 0, codec.ErrIncompressible
	}
	return set.encode(dst[:set.EncodeBound()], row[:c.RowBytes()]), nil
}

// best returns the set that stores the row in the fewest bits, the first of several, and the bytes that takes.
func (c *Clustered) best(row []byte) (best *Codec, bytes int) {
	fewest := 0
	for _, set := range c.sets {
		if n := set.rowBits(row); best == nil || n < fewest {
			best, fewest = set, n
		}
	}
	return best, (fewest + 7) / 8
}

// Decode implements codec.Codec.
func (c *Clustered) Decode(row, src []byte) (int, error) {
	set, err := c.setOf(src)
	if err != nil {
		return 0, err
	}
	return set.Decode(row, src)
}

// Stored implements codec.Codec.
func (c *Clustered) Stored(src []byte) (int, error) {
	set, err := c.setOf(src)
	if err != nil {
		return 0, err
	}
	return set.Stored(src)
}

// setOf returns the set that the row at the front of src is stored by.
func (c *Clustered) setOf(src []byte) (*Codec, error) {
	head := c.sets[0].chunks + c.lead
	if 8*len(src) < head {
		return nil, codec.CorruptError("ibpc", "stored row (%d bytes) is shorter than its head (%d bits)", len(src), head)
	}
	i := bitio.Window(src, c.sets[0].chunks) & (1<<c.lead - 1)
	if i >= uint64(len(c.sets)) {
		return nil, codec.CorruptError("ibpc", "cluster (%d) is not one of %d", i, len(c.sets))
	}
	return c.sets[i], nil
}

// MetadataBytes implements codec.Codec.
func (c *Clustered) MetadataBytes() int64 {
	return int64(coderBytes(c.sets[0].chunk, c.RowBytes(), len(c.sets)))
}

// DeviceForm implements codec.OnDevice.
func (c *Clustered) DeviceForm() codec.DeviceForm { return coderForm(c.sets, c.lead) }

// Serialised: "TCIC", version 1, 3 zeros, the number of sets in 32 bits; then for each set its own serialised form behind its
// length in 32 bits; CRC32C of all before it.
const clusteredHeader = 12

var clusteredFrame = rowcodec.Frame{Codec: "ibpc", Magic: "TCIC", Bytes: clusteredHeader + 4}

// MarshalBinary implements codec.Codec.
func (c *Clustered) MarshalBinary() ([]byte, error) {
	b := clusteredFrame.Begin(0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.sets)))
	for _, set := range c.sets {
		one, err := set.MarshalBinary()
		if err != nil {
			return nil, err
		}
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(one))), one...)
	}
	return rowcodec.Seal(b), nil
}

// UnmarshalClustered restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func UnmarshalClustered(b []byte) (*Clustered, error) {
	body, err := clusteredFrame.Open(b)
	if err != nil {
		return nil, err
	}
	if b[5]|b[6]|b[7] != 0 {
		return nil, codec.CorruptError("ibpc", "metadata bytes 5 to 7 (%x) are not 0", b[5:8])
	}
	count, rest := binary.LittleEndian.Uint32(b[8:]), body[clusteredHeader:]
	if count < 1 || count > MaxClusters {
		return nil, codec.CorruptError("ibpc", "clusters (%d) are not 1 to %d", count, MaxClusters)
	}
	var sets []*Codec
	for i := range count {
		if len(rest) < 4 || uint32(len(rest)-4) < binary.LittleEndian.Uint32(rest) {
			return nil, codec.CorruptError("ibpc", "metadata end in cluster %d of %d", i, count)
		}
		n := binary.LittleEndian.Uint32(rest)
		set, err := Unmarshal(rest[4:][:n])
		if err != nil {
			return nil, err
		}
		sets, rest = append(sets, set), rest[4+n:]
		if first := sets[0]; set.chunk != first.chunk || set.rowBytes != first.rowBytes {
			return nil, codec.CorruptError("ibpc", "cluster %d has chunks of %d and rows of %d bytes, the first has %d and %d", i, set.chunk, set.rowBytes, first.chunk, first.rowBytes)
		}
	}
	if len(rest) != 0 {
		return nil, codec.CorruptError("ibpc", "metadata have %d bytes after the last cluster", len(rest))
	}
	return clusteredOf(sets), nil
}
