// Package snapshot is the format of files that list the rows which a cache has admitted, for a warm start. docs/format/snapshot.md describes it.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"os"
	"unsafe"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
)

// Table is a table with its admitted rows.
type Table struct {
	Name     string
	DType    dtype.Type
	RowBytes int
	Rows     []uint64 // not used for reading
}

// magic is the beginning of a snapshot. Its last byte is the version of the format, which docs/format/snapshot.md describes.
const magic = "TCSNAP\x00\x01"

// headerBytes is the length of the magic and the number of tables. tableBytes is the length of a table's fields before its name.
const (
	headerBytes = 16
	tableBytes  = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the content of a snapshot.
func Encode(tables []Table) []byte {
	order := binary.LittleEndian
	b := order.AppendUint64([]byte(magic), uint64(len(tables)))
	b = order.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for i := range tables {
		t, from := &tables[i], len(b)
		b = order.AppendUint64(b, uint64(len(t.Name)))
		b = order.AppendUint64(b, uint64(t.RowBytes))
		b = order.AppendUint64(b, elementsOf(t.DType))
		b = order.AppendUint64(b, uint64(len(t.Rows)))
		b = append(b, t.Name...)
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t.Rows))), len(t.Rows)*8)...)
		b = order.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	}
	return b
}

// Read returns the keys of a snapshot file of tables like these. It reads the rest of a file only if the file begins like a
// snapshot.
func Read(path string, tables []Table) ([]uint64, error) {
	info, err := os.Stat(path) // before opening, because opening a pipe would wait for its writer
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: must be a regular file (%v)", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, len(magic))
	if n, err := io.ReadFull(f, b); err != nil || string(b) != magic {
		return nil, fmt.Errorf("%s: damaged or another cache's: at byte 0: not a snapshot of this version (%q)", path, b[:n])
	}
	rest, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	keys, err := Decode(append(b, rest...), tables)
	if err != nil {
		return nil, fmt.Errorf("%s: damaged or another cache's: %w", path, err)
	}
	return keys, nil
}

// Decode returns the keys of a snapshot of tables like these. Row numbers may be beyond the tables'.
func Decode(b []byte, tables []Table) (keys []uint64, err error) {
	order, rest := binary.LittleEndian, b
	fail := func(format string, args ...any) ([]uint64, error) {
		return nil, fmt.Errorf("at byte %d: "+format, append([]any{len(b) - len(rest)}, args...)...)
	}
	checked := func(n int) bool { return crc32.Checksum(rest[:n], castagnoli) == order.Uint32(rest[n:]) }
	if len(rest) < headerBytes+4 {
		return fail("header: %w", io.ErrUnexpectedEOF)
	}
	if string(rest[:8]) != magic {
		return fail("not a snapshot of this version (%q)", rest[:8])
	}
	if !checked(headerBytes) {
		return fail("header: wrong checksum")
	}
	if n := order.Uint64(rest[8:]); n != uint64(len(tables)) {
		return fail("tables (%d) must be the cache's %d", n, len(tables))
	}
	rest = rest[headerBytes+4:]
	for i, t := range tables {
		if len(rest) < tableBytes {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		name, rowBytes, elements, n := order.Uint64(rest), order.Uint64(rest[8:]), order.Uint64(rest[16:]), order.Uint64(rest[24:])
		if name > math.MaxInt32 || n > uint64(len(rest))/8 || uint64(len(rest)) < tableBytes+name+8*n+4 {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		size := int(tableBytes + name + 8*n)
		if !checked(size) {
			return fail("table %d: wrong checksum", i)
		}
		if is := string(rest[tableBytes:][:name]); is != t.Name || rowBytes != uint64(t.RowBytes) || elements != elementsOf(t.DType) {
			return fail("table %d: %s, rows of %d bytes of %v, must be the cache's: %s, rows of %d bytes of %v",
				i, is, rowBytes, elementsName(elements), t.Name, t.RowBytes, t.DType)
		}
		for at := tableBytes + int(name); at < size; at += 8 {
			row := order.Uint64(rest[at:])
			if row >= hashmap.MaxRows {
				return fail("table %d: row number (%d)", i, row)
			}
			keys = append(keys, hashmap.Key(i, int64(row)))
		}
		rest = rest[size+4:]
	}
	if len(rest) != 0 {
		return fail("%d bytes too many", len(rest))
	}
	return keys, nil
}

// elementsOf returns the number that stands for a type in a snapshot: package dtype's, or a hash of the names of a row of parts with the
// highest bit set.
func elementsOf(of dtype.Type) uint64 {
	if !of.IsRow() {
		return uint64(of)
	}
	h := fnv.New64a()
	h.Write([]byte(of.String()))
	return h.Sum64() | 1<<63
}

// elementsName returns the name of such a number.
func elementsName(elements uint64) string {
	if elements>>63 != 0 {
		return fmt.Sprintf("parts (%016x)", elements)
	}
	return dtype.Type(min(elements, math.MaxUint8)).String()
}
