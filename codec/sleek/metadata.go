package sleek

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5        6          7      8           12         14        16      20
//	+------+-------+--------+----------+------+-----------+----------+---------+-------+
//	| TCSL | ver 1 | bytes  | bits of  | mode | row bytes | subchunk | log2 of | CRC32C|
//	|      |       | a word | exponent |      |           | bytes    | bound   |       |
//	+------+-------+--------+----------+------+-----------+----------+---------+-------+
//
// Mode is 0 for lossless (then the bound's logarithm is 0) and 1 for bounded. The CRC covers all bytes before it.
const (
	metadataMagic   = "TCSL"
	metadataVersion = 1
	metadataBytes   = 20
)

const (
	modeLossless = iota
	modeBounded
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	mode, exp := byte(modeLossless), 0
	if c.bounded != nil {
		mode, exp = modeBounded, c.bounded.exp
	}
	b := append([]byte(metadataMagic), metadataVersion, byte(c.word), byte(c.exponent), mode)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = binary.LittleEndian.AppendUint16(b, uint16(c.subchunk))
	b = binary.LittleEndian.AppendUint16(b, uint16(int16(exp)))
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	if len(b) != metadataBytes || !bytes.HasPrefix(b, []byte(metadataMagic)) {
		return nil, codec.CorruptError(name, "metadata (%d bytes) is not %d bytes that begin with %q", len(b), metadataBytes, metadataMagic)
	}
	if b[4] != metadataVersion {
		return nil, codec.CorruptError(name, "metadata version (%d) is not %d", b[4], metadataVersion)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := checksum(body); got != sum {
		return nil, codec.CorruptError(name, "metadata checksum (%08x) is not %08x", got, sum)
	}
	l := layout{int(b[5]), int(b[6])}
	if !slices.Contains(slices.Collect(maps.Values(layouts)), l) {
		return nil, codec.CorruptError(name, "word (%d bytes, %d bits of exponent) is of no element type", l.word, l.exponent)
	}
	var of *bounded
	exp := int(int16(binary.LittleEndian.Uint16(b[14:])))
	switch mode := b[7]; {
	case mode == modeBounded:
		if of = boundedAt(l, exp); of.exp != exp {
			return nil, codec.CorruptError(name, "bound (2^%d) is not one of the element type's", exp)
		}
	case mode != modeLossless || exp != 0:
		return nil, codec.CorruptError(name, "mode (%d, bound 2^%d) is neither lossless nor bounded", mode, exp)
	}
	c, err := newCodec(l, int(binary.LittleEndian.Uint32(b[8:])), int(binary.LittleEndian.Uint16(b[12:])), of)
	if err != nil {
		return nil, codec.CorruptError(name, "%v", err)
	}
	return c, nil
}
