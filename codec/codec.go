// Package codec defines what a row codec is: a lossless transform of one table's rows, each on its own, so that any row
// can be read back without its neighbours.
//
// A codec is made for one table from a sample of its rows ([Family.Train]); what it learned is the table's codec
// metadata. It is immutable afterwards and safe for concurrent use. A row that would not shrink is stored raw by the
// caller, so nothing ever expands; the raw flag is kept outside the stored bytes (location word, host tier).
//
// Bit patterns decide, not values: NaN payloads, infinities, -0 and subnormals are ordinary input. All formats are
// little-endian. Corrupt stored bytes give [ErrCorrupt] or some row, never a panic or a read outside the given slice.
package codec

import (
	"encoding"
	"errors"
	"fmt"
)

var (
	// ErrIncompressible is a normal outcome of Encode: the row is stored raw.
	ErrIncompressible = errors.New("codec: row does not shrink")
	// ErrCorrupt is returned for stored bytes or metadata that no encoder writes.
	ErrCorrupt = errors.New("codec: corrupt data")
)

// Codec transforms the rows of one table.
type Codec interface {
	// Name is the codec's name as the command line takes it, such as "ibp4".
	Name() string
	// RowBytes is the length of every row.
	RowBytes() int
	// EncodeBound is the length of dst that Encode needs, whatever the row. It may exceed RowBytes.
	EncodeBound() int
	// Encode writes the stored form of row to dst and returns its length, which is less than RowBytes; or
	// ErrIncompressible, with dst then undefined. dst and row must not overlap. It does not allocate.
	Encode(dst, row []byte) (stored int, err error)
	// Decode restores a row from the stored form at the front of src, which may be followed by other bytes, and
	// returns the stored length. Every byte of row is written unless there is an error. It does not allocate.
	Decode(row, src []byte) (stored int, err error)
	// Stored returns the length of the stored form at the front of src without decoding it.
	Stored(src []byte) (int, error)
	// MetadataBytes is the memory that each device keeps for the table: what the codec learned and what derives from it.
	MetadataBytes() int64
	// MarshalBinary returns the metadata in a versioned, checksummed form.
	encoding.BinaryMarshaler
}

// Family makes codecs of one kind.
type Family struct {
	// Name as the command line takes it.
	Name string
	// Train makes a codec for rows like those of the sample, which lie back to back in it.
	Train func(sample []byte, rowBytes int) (Codec, error)
	// Unmarshal restores a codec from MarshalBinary's bytes.
	Unmarshal func(metadata []byte) (Codec, error)
}

// CorruptError wraps ErrCorrupt with what was found.
func CorruptError(codec, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrCorrupt, codec, fmt.Sprintf(format, args...))
}

// DeviceForm is a codec's metadata as the kernels read it, and what a row's decoding needs besides.
type DeviceForm struct {
	// Metadata is the device metadata, a multiple of 16 bytes.
	Metadata []byte
	// Chunk is the chunk length in bytes and Steps the steps of expansion in the metadata: they pick the kernel.
	Chunk, Steps int
	// Chunks is the number of chunks of a row, and KeptBits what its payload takes when all of them participate.
	Chunks, KeptBits int
	// Still says that no kept bit of any chunk is moved when the chunk is packed: Steps can be left out.
	Still bool
}

// OnDevice is a codec that the kernels can decode.
type OnDevice interface {
	Codec
	DeviceForm() DeviceForm
}
