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

	"github.com/tensorcache/tensorcache/dtype"
)

var (
	// ErrIncompressible is a normal outcome of Encode: the row is stored raw.
	ErrIncompressible = errors.New("codec: row does not shrink")
	// ErrCorrupt is returned for stored bytes or metadata that no encoder writes.
	ErrCorrupt = errors.New("codec: corrupt data")
	// ErrDType is returned by Train for element types, or row lengths, that the codec cannot serve: auto-selection passes on.
	ErrDType = errors.New("codec: element type not served")
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
	// Option is what the family takes after a colon in its name, for usage texts: "BOUND" of "sleek-eb:BOUND". Such a family has
	// WithOption instead of Train. "" for none.
	Option string
	// WithOption returns the family for what followed the colon, its Name being the whole, or an error that says what it must be.
	WithOption func(option string) (Family, error)
	// Lossy says that rows may come back changed: used when asked for by name only, never picked by auto-selection.
	Lossy bool
	// Bound is the largest absolute error of an element of a lossy family; 0 where its option, or nothing, is lossy.
	Bound float64
	// Choice says that the family picks among others, which auto-selection tries themselves.
	Choice bool
	// GPURate is how fast a GPU decodes hits, for auto-selection; zero for codecs that GPUs cannot decode. RateOnGPU has them all.
	GPURate GPURate
	// Rows says that Train takes types of rows of parts. The other families store such rows as bytes: see ElementsOf.
	Rows bool
	// Train makes a codec for rows of of's elements like those of the sample, which lie back to back in it. An element type
	// or row length that it cannot serve is an error that wraps ErrDType.
	Train func(sample []byte, rowBytes int, of dtype.Type) (Codec, error)
	// TrainOn, if not nil, makes what Train would, of a sample that a device holds.
	TrainOn func(sample DeviceSample, of dtype.Type) (Codec, error)
	// Unmarshal restores a codec from MarshalBinary's bytes.
	Unmarshal func(metadata []byte) (Codec, error)
}

// ElementsOf returns the type that Train and TrainOn are given for a table of this one: bytes for rows of parts that the family does not know.
func (f Family) ElementsOf(of dtype.Type) dtype.Type {
	if of.IsRow() && !f.Rows {
		return dtype.Uint8
	}
	return of
}

// DeviceSample is a training sample in a device's memory. A family asserts the further interface that its training needs, such as
// ibp.Search, and returns an error where the device does not have it.
type DeviceSample interface {
	// Rows is the number of rows of the sample, and RowBytes the length of each.
	Rows() int
	RowBytes() int
}

// CorruptError wraps ErrCorrupt with what was found.
func CorruptError(codec, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrCorrupt, codec, fmt.Sprintf(format, args...))
}

// DTypeError wraps ErrDType with the codec and what it cannot serve.
func DTypeError(codec, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDType, codec, fmt.Sprintf(format, args...))
}

// Params are how many numbers of its own a codec gives its kernels.
const Params = 4

// DeviceForm is a codec's metadata as its kernels read them, and what else the kernels need to decode a row.
type DeviceForm struct {
	// Kernel names the kernels that decode the rows: the name of a KERNELS line in a header of package kernels.
	Kernel string
	// Metadata is the device metadata, a multiple of 16 bytes. It may be empty.
	Metadata []byte
	// Params are the kernels' RowCodec.params. The header of the kernels says what they mean.
	Params [Params]uint32
	// Head is the number of bytes at the front of a stored row that say how long the row is: the bytes that the kernels' storedLength
	// reads. At most the row's length.
	Head int
	// Scratch is the shared memory that the decoding of a row takes besides the row, in bytes, a multiple of 16; EncodeScratch
	// the same of encoding.
	Scratch, EncodeScratch int
}

// OnDevice is a codec that the kernels can decode.
type OnDevice interface {
	Codec
	DeviceForm() DeviceForm
}
