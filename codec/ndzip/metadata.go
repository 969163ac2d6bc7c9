package ndzip

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/tensorcache/tensorcache/codec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5        6       8           12      16
//	+------+-------+--------+-------+-----------+-------+
//	| TCND | ver 1 | bytes  | 0   0 | row bytes | CRC32C|
//	|      |       | a word |       |           |       |
//	+------+-------+--------+-------+-----------+-------+
//
// The CRC covers all bytes before it.
const (
	metadataMagic   = "TCND"
	metadataVersion = 1
	metadataBytes   = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	b := append([]byte(metadataMagic), metadataVersion, byte(c.word), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
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
	if b[6]|b[7] != 0 {
		return nil, codec.CorruptError(name, "metadata bytes 6 and 7 (%02x %02x) are not 0", b[6], b[7])
	}
	word := int(b[5])
	if word != 2 && word != 4 && word != 8 {
		return nil, codec.CorruptError(name, "word (%d bytes) must be 2, 4 or 8", word)
	}
	c, err := newCodec(word, int(binary.LittleEndian.Uint32(b[8:])))
	if err != nil {
		return nil, codec.CorruptError(name, "%v", err)
	}
	return c, nil
}
