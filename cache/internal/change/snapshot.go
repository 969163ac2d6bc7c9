package change

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"os"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

// snapshotMagic is the beginning of a snapshot. Its last byte is the version of the format, which docs/format/snapshot.md describes.
const snapshotMagic = "TCSNAP\x00\x01"

// snapshotHeader is the length of the magic and the number of tables. snapshotTable is the length of a table's fields before its name.
const (
	snapshotHeader = 16
	snapshotTable  = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// WriteSnapshot implements Cache.Snapshot. It returns the length of the file in bytes.
func (w *Writer) WriteSnapshot(path string) (int, error) {
	w.snapshot.Lock()
	defer w.snapshot.Unlock()
	contents := w.encodeSnapshot()
	return len(contents), atomicfile.Write(path, contents)
}

// encodeSnapshot returns the content of a snapshot of the admitted rows.
func (w *Writer) encodeSnapshot() []byte {
	rows := make([][]uint64, len(w.set.Tables))
	var updated []uint64
	func() {
		w.mu.index.swap.RLock()
		defer w.mu.index.swap.RUnlock()
		for key, l := range w.mu.index.m.All() { // may be read beside its writer
			if w.store.Overlay.Has(l) {
				updated = append(updated, key)
				continue
			}
			table, row := hashmap.SplitKey(key)
			rows[table] = append(rows[table], uint64(row))
		}
	}()
	func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range updated {
			l := w.mu.index.find(key)
			if f := w.mu.updated[key]; f != nil && f.admitted || f == nil && l.Valid() { // the row may have left the overlay since
				table, row := hashmap.SplitKey(key)
				rows[table] = append(rows[table], uint64(row))
			}
		}
	}()
	order := binary.LittleEndian
	b := order.AppendUint64([]byte(snapshotMagic), uint64(len(w.set.Tables)))
	b = order.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for i, t := range w.set.Tables {
		from := len(b)
		b = order.AppendUint64(b, uint64(len(t.Name)))
		b = order.AppendUint64(b, uint64(t.Tier.RowBytes()))
		b = order.AppendUint64(b, elementsOf(t.DType))
		b = order.AppendUint64(b, uint64(len(rows[i])))
		b = append(b, t.Name...)
		b = append(b, asBytes(rows[i])...)
		b = order.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	}
	return b
}

// ReadSnapshot returns the keys of a snapshot file of tables like these. It reads the rest of a file only if the file begins like a
// snapshot.
func ReadSnapshot(path string, tables []*read.Table) ([]uint64, error) {
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
	b := make([]byte, len(snapshotMagic))
	if n, err := io.ReadFull(f, b); err != nil || string(b) != snapshotMagic {
		return nil, fmt.Errorf("%s: damaged or another cache's: at byte 0: not a snapshot of this version (%q)", path, b[:n])
	}
	rest, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	keys, err := DecodeSnapshot(append(b, rest...), tables)
	if err != nil {
		return nil, fmt.Errorf("%s: damaged or another cache's: %w", path, err)
	}
	return keys, nil
}

// DecodeSnapshot returns the keys of a snapshot of tables like these. Row numbers may be beyond the tables'.
func DecodeSnapshot(b []byte, tables []*read.Table) (keys []uint64, err error) {
	order, rest := binary.LittleEndian, b
	fail := func(format string, args ...any) ([]uint64, error) {
		return nil, fmt.Errorf("at byte %d: "+format, append([]any{len(b) - len(rest)}, args...)...)
	}
	checked := func(n int) bool { return crc32.Checksum(rest[:n], castagnoli) == order.Uint32(rest[n:]) }
	if len(rest) < snapshotHeader+4 {
		return fail("header: %w", io.ErrUnexpectedEOF)
	}
	if string(rest[:8]) != snapshotMagic {
		return fail("not a snapshot of this version (%q)", rest[:8])
	}
	if !checked(snapshotHeader) {
		return fail("header: wrong checksum")
	}
	if n := order.Uint64(rest[8:]); n != uint64(len(tables)) {
		return fail("tables (%d) must be the cache's %d", n, len(tables))
	}
	rest = rest[snapshotHeader+4:]
	for i, t := range tables {
		if len(rest) < snapshotTable {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		name, rowBytes, elements, n := order.Uint64(rest), order.Uint64(rest[8:]), order.Uint64(rest[16:]), order.Uint64(rest[24:])
		if name > math.MaxInt32 || n > uint64(len(rest))/8 || uint64(len(rest)) < snapshotTable+name+8*n+4 {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		size := int(snapshotTable + name + 8*n)
		if !checked(size) {
			return fail("table %d: wrong checksum", i)
		}
		if is := string(rest[snapshotTable:][:name]); is != t.Name || rowBytes != uint64(t.Tier.RowBytes()) || elements != elementsOf(t.DType) {
			return fail("table %d: %s, rows of %d bytes of %v, must be the cache's: %s, rows of %d bytes of %v",
				i, is, rowBytes, elementsName(elements), t.Name, t.Tier.RowBytes(), t.DType)
		}
		for at := snapshotTable + int(name); at < size; at += 8 {
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

func asBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
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
