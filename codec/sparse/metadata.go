package sparse

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5         6      7          8           12           20      20 + 2s
//	+------+-------+---------+------+----------+-----------+------------+--------+-------+
//	| TCSP | ver 1 | element | rot  | T        | row bytes | background | symbols| CRC32C|
//	|      |       | bytes   | 0, 1 | 1 to 12  |           | 8 B        | s × 2 B|       |
//	+------+-------+---------+------+----------+-----------+------------+--------+-------+
//
// s is 0 to 64; the CRC covers all bytes before it.
var frame = rowcodec.Frame{Codec: "sparse", Magic: "TCSP", Bytes: metadataHeader + 4}

const metadataHeader = 20

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	s := &c.shape
	b := frame.Begin(byte(s.ElementBytes), byte(s.Rotate), byte(s.SymbolBits))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = binary.LittleEndian.AppendUint64(b, s.Background)
	for _, symbol := range s.Symbols {
		b = binary.LittleEndian.AppendUint16(b, symbol)
	}
	return rowcodec.Seal(b), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	body, err := frame.Open(b)
	if err != nil {
		return nil, err
	}
	return parse(body)
}

// parse reads metadata without its checksum.
func parse(body []byte) (*Codec, error) {
	s := Shape{
		ElementBytes: int(body[5]), Rotate: int(body[6]), SymbolBits: int(body[7]), Background: binary.LittleEndian.Uint64(body[12:]),
	}
	rest := body[metadataHeader:]
	if len(rest)%2 != 0 {
		return nil, codec.CorruptError("sparse", "metadata (%d bytes) does not hold symbols of 2 bytes", len(body))
	}
	for ; len(rest) > 0; rest = rest[2:] {
		s.Symbols = append(s.Symbols, binary.LittleEndian.Uint16(rest))
	}
	c, err := New(int(binary.LittleEndian.Uint32(body[8:])), s)
	return rowcodec.OrCorrupt("sparse", c, err)
}
