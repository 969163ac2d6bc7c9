package model

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/pages"
)

// Array is one tensor in memory. Data has its elements in C order, little-endian.
type Array struct {
	DType dtype.Type
	Shape []int64
	Data  []byte
	// Note is a number from 0 to 255 that goes with the tensor, for the caller's own use.
	Note uint8
}

// A compressed tensor: docs/format/model.md.
const (
	blobMagic   = "TCTENSOR"
	blobVersion = 1
	blobFixed   = 24
	maxAxes     = 64
	expandable  = 1024 // claims of more bytes than so many times the blob's are believed once every page has been decoded
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNotCompressed is wrapped by errors of Decompress for bytes that Compress has not written.
var ErrNotCompressed = errors.New("model: not a compressed tensor")

// bytes returns the length of the elements, or an error.
func (a *Array) bytes() (int64, error) {
	if a.DType.Size() == 0 || a.DType.IsRow() {
		return 0, fmt.Errorf("model: element type (%v) must be one of package dtype", a.DType)
	}
	if len(a.Shape) > maxAxes {
		return 0, fmt.Errorf("model: axes (%d) must be at most %d", len(a.Shape), maxAxes)
	}
	n, empty := int64(a.DType.Size()), false
	for _, axis := range a.Shape {
		if axis < 0 {
			return 0, fmt.Errorf("model: axis (%d) must be 0 or more", axis)
		}
		empty = empty || axis == 0
	}
	if empty {
		return 0, nil
	}
	for _, axis := range a.Shape {
		if axis > 1<<50/n {
			return 0, fmt.Errorf("model: shape %v must have less than 2^50 bytes", a.Shape)
		}
		n *= axis
	}
	return n, nil
}

// rowBytes returns the length of the rows that the tensor is cut into.
func (a *Array) rowBytes() int64 {
	if len(a.Shape) > 1 {
		if r := a.Shape[len(a.Shape)-1] * int64(a.DType.Size()); r >= leastRow && r <= mostRow {
			return r
		}
	}
	return flatRow
}

// Compress returns a tensor's elements, type and shape in bytes that describe themselves. codec is a name that registry.Train takes, or pages.Smallest; elements of a type that
// the codec does not serve go through the second stage of pages only. With a codec that loses nothing, Decompress returns the same bits.
func Compress(a Array, codec string) ([]byte, error) {
	n, err := a.bytes()
	if err != nil {
		return nil, err
	}
	if int64(len(a.Data)) != n {
		return nil, fmt.Errorf("model: data (%d bytes) must be the %d of shape %v of %v", len(a.Data), n, a.Shape, a.DType)
	}
	place, row := pages.NewMemory(), a.rowBytes()
	ctx := context.Background()
	m, err := pages.Pack(ctx, func() (pages.Source, error) { return &flat{data: a.Data, rowBytes: row}, nil }, place.Writer(), pages.PackOptions{DType: a.DType, Codec: codec, OrRaw: true})
	if err != nil {
		return nil, err
	}
	store, err := place.Open()
	if err != nil {
		return nil, err
	}
	manifest, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := append([]byte(blobMagic), blobVersion, a.Note, byte(len(a.Shape)), 0)
	b = le.AppendUint32(b, uint32(len(manifest)))
	total := int64(blobFixed+8*len(a.Shape)+4+len(manifest)) + m.PageTotal
	for _, part := range m.Parts {
		total += part.Bytes
	}
	b = le.AppendUint64(b, uint64(total))
	for _, axis := range a.Shape {
		b = le.AppendUint64(b, uint64(axis))
	}
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = append(b, manifest...)
	for p := range pages.PartCount {
		part, err := store.Part(ctx, p)
		if err != nil {
			return nil, err
		}
		b = append(b, part...)
	}
	for p := range m.Pages {
		b = append(b, store.Page(p)...)
	}
	return b, nil
}

// Compressed is a compressed tensor that has been looked at, and not decompressed.
type Compressed struct {
	// Array is the tensor without its Data.
	Array
	// Bytes is the length of the elements.
	Bytes int64
	// Codec is the name of the codec, "none" if all rows are raw.
	Codec string
	store *pages.MemoryStore
}

// Inspect checks what a compressed tensor says of itself. It makes sure that Bytes is no claim without contents: that many bytes can be allocated. The result refers to b, which must not
// change.
func Inspect(b []byte) (*Compressed, error) {
	fail := func(format string, args ...any) (*Compressed, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrNotCompressed}, args...)...)
	}
	le := binary.LittleEndian
	if len(b) < blobFixed || string(b[:8]) != blobMagic {
		return fail("%d bytes must begin with %q", len(b), blobMagic)
	}
	if b[8] != blobVersion {
		return fail("version (%d) must be %d", b[8], blobVersion)
	}
	if total := le.Uint64(b[16:]); total != uint64(len(b)) {
		return fail("%d bytes must be %d", len(b), total)
	}
	axes := int(b[10])
	head := blobFixed + 8*axes
	if axes > maxAxes || b[11] != 0 || len(b) < head+4 || le.Uint32(b[head:]) != crc32.Checksum(b[:head], castagnoli) {
		return fail("the head is damaged")
	}
	c := &Compressed{Array: Array{Shape: make([]int64, axes), Note: b[9]}}
	for i := range c.Shape {
		c.Shape[i] = int64(le.Uint64(b[blobFixed+8*i:]))
	}
	rest := b[head+4:]
	take := func(n int64) (part []byte) {
		if n < 0 || n > int64(len(rest)) {
			return nil
		}
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	var m pages.Manifest
	if err := m.UnmarshalBinary(take(int64(le.Uint32(b[12:])))); err != nil {
		return fail("%v", err)
	}
	c.DType, c.Codec = m.DType, m.Codec
	var err error
	if c.Bytes, err = c.bytes(); err != nil {
		return fail("%v", err)
	}
	if row := int64(m.RowBytes); m.Ordered || m.Rows != (c.Bytes+row-1)/row {
		return fail("%d rows of %d bytes must be those of %d bytes", m.Rows, row, c.Bytes)
	}
	var parts pages.Parts
	for p := range parts {
		if parts[p] = take(m.Parts[p].Bytes); int64(len(parts[p])) != m.Parts[p].Bytes {
			return fail("%v: %v", pages.Part(p), io.ErrUnexpectedEOF)
		}
	}
	if c.store, err = pages.NewMemoryStore(&m, &parts, rest); err != nil {
		return fail("%v", err)
	}
	if c.Bytes > expandable*int64(len(b)) {
		if _, err := pages.Verify(context.Background(), c.store, nil); err != nil {
			return fail("%v", err)
		}
	}
	return c, nil
}

// Decode writes the elements to dst, which must be Bytes long.
func (c *Compressed) Decode(dst []byte) error {
	if int64(len(dst)) != c.Bytes {
		return fmt.Errorf("model: memory (%d bytes) must have the %d of shape %v of %v", len(dst), c.Bytes, c.Shape, c.DType)
	}
	t, err := pages.OpenStores(context.Background(), c.store)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotCompressed, err)
	}
	m := &Model{path: "compressed tensor", packed: &manifest{Tables: []table{{RowBytes: t.Manifest().RowBytes}}}, tables: []*pages.Table{t}, tensors: []Tensor{{Entry: safetensors.Entry{To: c.Bytes}}}}
	if err := m.Read(context.Background(), []Want{{Into: dst}}); err != nil {
		return fmt.Errorf("%w: %w", ErrNotCompressed, err)
	}
	return nil
}

// Decompress returns the tensor that Compress was given. Bytes that Compress has not written are an error that wraps ErrNotCompressed: garbage, cut or changed ones, and
// claims of sizes that the contents do not have.
func Decompress(b []byte) (Array, error) {
	c, err := Inspect(b)
	if err != nil {
		return Array{}, err
	}
	c.Data = make([]byte, c.Bytes)
	return c.Array, c.Decode(c.Data)
}

// flat is a tensor in memory as rows, the last of which is filled up with zeros.
type flat struct {
	data     []byte
	rowBytes int64
}

func (f *flat) Rows() int                { return int((int64(len(f.data)) + f.rowBytes - 1) / f.rowBytes) }
func (f *flat) RowBytes() int            { return int(f.rowBytes) }
func (f *flat) Close() error             { return nil }
func (f *flat) Read([]byte) (int, error) { return 0, io.EOF } // never called, as there is ReadFrom

func (f *flat) ReadFrom(row int64, dst []byte) error {
	clear(dst[copy(dst, f.data[row*f.rowBytes:]):])
	return nil
}
