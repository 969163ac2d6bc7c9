package pages

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/slab"
)

// Bounds of Manifest.PageBytes.
const (
	MinPageBytes = 4 << 10
	MaxPageBytes = 1 << 20
)

// Manifest describes one generation of a table: what is needed to find, check and decode its rows.
type Manifest struct {
	// Name is the table's name, at most 65,535 bytes.
	Name string
	// Codec is the name of the codec of the rows that are not raw, with its option; "none" if all rows are raw.
	Codec string
	// DType is the type of the elements.
	DType dtype.Type
	// Rows is the number of rows. RowBytes is the length of each before compression, 1 to slab.MaxRowBytes.
	Rows     int64
	RowBytes int
	// Generation counts the versions of the table in this store, from 1.
	Generation uint64
	// PageBytes is the most bytes of a page before the second stage, unless a single row needs more. LongestPage is the length of the
	// longest page, and the longest before the second stage.
	PageBytes, LongestPage int
	// Pages is the number of pages, PageTotal their bytes together.
	Pages     uint32
	PageTotal int64
	// GroupRows is the number of positions of a group.
	GroupRows int
	// RawRows is the number of rows that are stored raw, StoredBytes the length of all rows as they are stored.
	RawRows, StoredBytes int64
	// Stage is the second stage that pages were offered to; each page says whether it went through.
	Stage Stage
	// Ordered says that positions are not row numbers: there is an order.
	Ordered bool
	// Parts are the lengths and checksums of the parts of the generation that are not pages.
	Parts [PartCount]Sum
}

// Part names what a generation has besides pages and manifest.
type Part int

const (
	// PartIndex says which page holds which positions, and the length and checksum of every page.
	PartIndex Part = iota
	// PartMetadata is the codec's metadata, as Codec.MarshalBinary returned them. It is empty if Codec is "none".
	PartMetadata
	// PartOrder is the position of every row: 4 bytes each, little-endian. It is empty if the table is not ordered.
	PartOrder
	// PartCount is the number of parts.
	PartCount
)

func (p Part) String() string { return [PartCount]string{"index", "metadata", "order"}[p] }

// Parts are the contents of the parts, by Part.
type Parts [PartCount][]byte

// Sum is the length of a part, in bytes, and its SHA-256.
type Sum struct {
	Bytes  int64
	SHA256 [sha256.Size]byte
}

// sumOf returns the sum of a part's contents.
func sumOf(contents []byte) Sum { return Sum{int64(len(contents)), sha256.Sum256(contents)} }

// Check returns an error if the contents of a part are not those that the manifest was written with.
func (m *Manifest) Check(p Part, contents []byte) error {
	want := m.Parts[p]
	if n := int64(len(contents)); n != want.Bytes {
		return fmt.Errorf("pages: %v (%d bytes) must have %d bytes", p, n, want.Bytes)
	}
	if sha256.Sum256(contents) != want.SHA256 {
		return fmt.Errorf("pages: %v: wrong checksum", p)
	}
	return nil
}

// Same returns an error that says what differs if other is not a manifest of the same pages. Generations may differ: stores count their own.
func (m *Manifest) Same(other *Manifest) error {
	a, b := *m, *other
	a.Generation, b.Generation = 0, 0
	if a == b {
		return nil
	}
	switch {
	case a.Name != b.Name:
		return fmt.Errorf("pages: table (%q) must be %q", b.Name, a.Name)
	case a.DType != b.DType || a.Rows != b.Rows || a.RowBytes != b.RowBytes:
		return fmt.Errorf("pages: table %s: %d rows of %d bytes of %v must be %d rows of %d bytes of %v",
			a.Name, b.Rows, b.RowBytes, b.DType, a.Rows, a.RowBytes, a.DType)
	case a.Codec != b.Codec:
		return fmt.Errorf("pages: table %s: codec (%s) must be %s", a.Name, b.Codec, a.Codec)
	}
	return fmt.Errorf("pages: table %s: contents differ from those of the same table in the other store", a.Name)
}

// The format: docs/format/pages.md. The eighth byte of the magic is the version.
const (
	manifestMagic = "TCPAGES\x01"
	manifestFixed = 200
	// maxManifest is the most bytes of a manifest.
	maxManifest = manifestFixed + 2*math.MaxUint16 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of b.
func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// MarshalBinary returns the manifest as stores keep it.
func (m *Manifest) MarshalBinary() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, manifestFixed+len(m.Name)+len(m.Codec)+4), manifestMagic...)
	of := byte(rowOfParts)
	if !m.DType.IsRow() {
		of = byte(m.DType)
	}
	b = append(b, of, byte(m.Stage), boolByte(m.Ordered), 0)
	b = le.AppendUint32(b, uint32(m.RowBytes))
	b = le.AppendUint64(b, uint64(m.Rows))
	b = le.AppendUint64(b, m.Generation)
	b = le.AppendUint32(b, uint32(m.PageBytes))
	b = le.AppendUint32(b, uint32(m.LongestPage))
	b = le.AppendUint32(b, m.Pages)
	b = le.AppendUint32(b, uint32(m.GroupRows))
	b = le.AppendUint64(b, uint64(m.PageTotal))
	b = le.AppendUint64(b, uint64(m.RawRows))
	b = le.AppendUint64(b, uint64(m.StoredBytes))
	for _, s := range m.Parts {
		b = le.AppendUint64(b, uint64(s.Bytes))
		b = append(b, s.SHA256[:]...)
	}
	b = le.AppendUint32(b, uint32(len(m.Name)))
	b = le.AppendUint32(b, uint32(len(m.Codec)))
	b = append(append(b, m.Name...), m.Codec...)
	if m.DType.IsRow() {
		b = append(b, m.DType.String()...)
	}
	return le.AppendUint32(b, checksum(b)), nil
}

// UnmarshalBinary reads what MarshalBinary returned. Anything else is an error.
func (m *Manifest) UnmarshalBinary(b []byte) error {
	fail := func(format string, args ...any) error { return fmt.Errorf("pages: manifest: "+format, args...) }
	if len(b) < len(manifestMagic) || string(b[:7]) != manifestMagic[:7] {
		return fail("not a manifest of a table of pages")
	}
	if b[7] != manifestMagic[7] {
		return fail("version (%d) must be %d", b[7], manifestMagic[7])
	}
	if len(b) < manifestFixed+4 {
		return fail("%w", io.ErrUnexpectedEOF)
	}
	le := binary.LittleEndian
	sum := len(b) - 4
	if checksum(b[:sum]) != le.Uint32(b[sum:]) {
		return fail("wrong checksum")
	}
	if b[10] > 1 || b[11] != 0 {
		return fail("flags (%d, %d) must be 0 or 1, and 0", b[10], b[11])
	}
	got := Manifest{
		DType: dtype.Type(b[8]), Stage: Stage(b[9]), Ordered: b[10] == 1, RowBytes: int(le.Uint32(b[12:])),
		Rows: int64(le.Uint64(b[16:])), Generation: le.Uint64(b[24:]), PageBytes: int(le.Uint32(b[32:])), LongestPage: int(le.Uint32(b[36:])),
		Pages: le.Uint32(b[40:]), GroupRows: int(le.Uint32(b[44:])),
		PageTotal: int64(le.Uint64(b[48:])), RawRows: int64(le.Uint64(b[56:])), StoredBytes: int64(le.Uint64(b[64:])),
	}
	at := 72
	for i := range got.Parts {
		got.Parts[i].Bytes = int64(le.Uint64(b[at:]))
		at += 8 + copy(got.Parts[i].SHA256[:], b[at+8:])
	}
	name, codec := int64(le.Uint32(b[at:])), int64(le.Uint32(b[at+4:]))
	texts := b[at+8 : sum]
	parts := got.DType == rowOfParts
	if name+codec != int64(len(texts)) && (!parts || name+codec > int64(len(texts))) {
		return fail("names (%d and %d bytes) must have %d bytes together", name, codec, len(texts))
	}
	got.Name, got.Codec = string(texts[:name]), string(texts[name:name+codec])
	if text := string(texts[name+codec:]); parts {
		var err error
		if got.DType, err = dtype.Parse(text); err == nil && got.DType.String() != text {
			err = fmt.Errorf("parts (%q) must be %q", text, got.DType)
		}
		if err != nil {
			return fail("%w", err)
		}
	}
	if err := got.validate(); err != nil {
		return err
	}
	*m = got
	return nil
}

// validate returns an error if no table has such a manifest.
func (m *Manifest) validate() error {
	groups := int64(0)
	if m.GroupRows > 0 {
		groups = (m.Rows + int64(m.GroupRows) - 1) / int64(m.GroupRows)
	}
	order := int64(0)
	if m.Ordered {
		order = 4 * m.Rows
	}
	var what string
	var is any
	switch size := m.DType.Size(); {
	case len(m.Name) > math.MaxUint16:
		what, is = "length of the name", len(m.Name)
	case len(m.Codec) == 0 || len(m.Codec) > math.MaxUint16:
		what, is = "length of the codec's name", len(m.Codec)
	case size == 0:
		what, is = "element type", m.DType
	case m.RowBytes < 1 || m.RowBytes > slab.MaxRowBytes || m.RowBytes%size != 0 || m.DType.IsRow() && m.RowBytes != size:
		what, is = "row bytes", m.RowBytes
	case m.Rows < 0 || m.Rows > maxRows:
		what, is = "rows", m.Rows
	case m.Ordered && m.Rows > math.MaxUint32:
		what, is = "rows of an ordered table", m.Rows
	case m.PageBytes < MinPageBytes || m.PageBytes > MaxPageBytes:
		what, is = "page bytes", m.PageBytes
	case m.LongestPage < 0 || m.LongestPage > longestPage(m.PageBytes, m.RowBytes):
		what, is = "longest page", m.LongestPage
	case m.GroupRows < 1 || m.GroupRows > maxGroupRows:
		what, is = "rows of a group", m.GroupRows
	case int64(m.Pages) < groups || int64(m.Pages) > m.Rows:
		what, is = "pages", m.Pages
	case m.PageTotal < 0 || m.PageTotal > int64(m.Pages)*int64(m.LongestPage):
		what, is = "bytes of the pages", m.PageTotal
	case m.RawRows < 0 || m.RawRows > m.Rows:
		what, is = "raw rows", m.RawRows
	case m.StoredBytes < 0 || m.StoredBytes > m.Rows*int64(m.RowBytes):
		what, is = "stored bytes", m.StoredBytes
	case !m.Stage.valid():
		what, is = "stage", uint8(m.Stage)
	case m.Parts[PartIndex].Bytes != indexBytes(groups, int64(m.Pages)):
		what, is = "bytes of the index", m.Parts[PartIndex].Bytes
	case m.Parts[PartMetadata].Bytes < 0 || m.Parts[PartMetadata].Bytes > maxMetadata:
		what, is = "bytes of the metadata", m.Parts[PartMetadata].Bytes
	case m.Parts[PartOrder].Bytes != order:
		what, is = "bytes of the order", m.Parts[PartOrder].Bytes
	default:
		return nil
	}
	return fmt.Errorf("pages: manifest: %s (%v) cannot be", what, is)
}

// groups returns the number of groups.
func (m *Manifest) groups() int64 { return (m.Rows + int64(m.GroupRows) - 1) / int64(m.GroupRows) }

const (
	// rowOfParts stands for the type of a row of parts, whose text then follows the codec's name.
	rowOfParts = 255
	// maxRows is the most rows of a table.
	maxRows = 1 << 40
	// maxGroupRows bounds the memory that packing takes for a group.
	maxGroupRows = 1 << 20
	// maxMetadata bounds what is read because a manifest says so.
	maxMetadata = 1 << 30
)

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
