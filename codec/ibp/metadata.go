package ibp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/tensorcache/tensorcache/codec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5     6          8           12                 12 + n            12 + 2n
//	+------+-------+-----+----------+-----------+------------------+-----------------+-------+
//	| TCIB | ver 1 |  S  | 0      0 | row bytes | mask             | bitval          | CRC32C|
//	+------+-------+-----+----------+-----------+------------------+-----------------+-------+
//
// n is the row's bytes rounded up to S; the CRC covers all bytes before it.
const (
	metadataMagic   = "TCIB"
	metadataVersion = 1
	metadataHeader  = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	mask, bitval := c.MaskBitval()
	b := append([]byte(metadataMagic), metadataVersion, byte(c.chunk), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = append(append(b, mask...), bitval...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	if len(b) < metadataHeader+4 || !bytes.HasPrefix(b, []byte(metadataMagic)) {
		return nil, codec.CorruptError("ibp", "metadata (%d bytes) has no %q header", len(b), metadataMagic)
	}
	if b[4] != metadataVersion {
		return nil, codec.CorruptError("ibp", "metadata version (%d) is not %d", b[4], metadataVersion)
	}
	if b[6]|b[7] != 0 {
		return nil, codec.CorruptError("ibp", "metadata bytes 6 and 7 (%02x %02x) are not 0", b[6], b[7])
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, codec.CorruptError("ibp", "metadata checksum (%08x) is not %08x", got, sum)
	}
	chunk, rowBytes := int(b[5]), int(binary.LittleEndian.Uint32(b[8:]))
	planes := body[metadataHeader:]
	c, err := New(chunk, rowBytes, planes[:len(planes)/2], planes[len(planes)/2:])
	if err != nil {
		return nil, codec.CorruptError("ibp", "%v", err)
	}
	return c, nil
}

func unmarshal(b []byte) (codec.Codec, error) { return asCodec(Unmarshal(b)) }
