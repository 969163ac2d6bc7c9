package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Table is an array of rank ≥ 2 whose last axis is the row, to be served by a cache. New reads it and closes it. If New fails, the table is as it was: it
// can be given to New again, and must be closed with Close otherwise.
type Table struct {
	name   string
	dtype  dtype.Type
	source transfer.Source
	close  func() error
	used   *atomic.Bool // New has taken it, and has not failed
	shape  []int        // of OpenArray; nil: rows and columns

	// stamp tells what the rows are read from from anything else, also of the same name; "": not known.
	stamp string

	capacity int64 // rows; 0 for the number of rows
	codec    Codec // "": Options.Codec
	kind     kind
}

// Element is a Go type of table elements.
type Element interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// dtypes has the element type of each kind of an Element.
var dtypes = map[reflect.Kind]dtype.Type{
	reflect.Float32: dtype.Float32, reflect.Float64: dtype.Float64,
	reflect.Int8: dtype.Int8, reflect.Int16: dtype.Int16, reflect.Int32: dtype.Int32, reflect.Int64: dtype.Int64,
	reflect.Uint8: dtype.Uint8, reflect.Uint16: dtype.Uint16, reflect.Uint32: dtype.Uint32, reflect.Uint64: dtype.Uint64,
}

// FromSlice returns a table of rows of the given number of columns that lie back to back in values. New copies the values, which must
// not change until then.
func FromSlice[T Element](name string, values []T, columns int) (Table, error) {
	of := reflect.TypeFor[T]()
	if columns < 1 {
		return Table{}, fmt.Errorf("cache: table %s: columns (%d) must be at least 1", name, columns)
	}
	return FromBytes(name, dtypes[of.Kind()], AsBytes(values), columns*int(of.Size()))
}

// FromBytes returns a table of rows of rowBytes bytes that lie back to back in data, with little-endian elements of the given type, or with parts
// of several types as dtype.RowOf has them. New copies the data, which must not change until then.
func FromBytes(name string, of dtype.Type, data []byte, rowBytes int) (Table, error) {
	switch {
	case of.Size() == 0:
		return Table{}, fmt.Errorf("cache: table %s: element type (%v) must be one of package dtype's", name, of)
	case of.IsRow() && rowBytes != of.Size():
		return Table{}, fmt.Errorf("cache: table %s: row (%d bytes) must have the %d bytes of %v", name, rowBytes, of.Size(), of)
	case rowBytes < 1 || rowBytes%of.Size() != 0:
		return Table{}, fmt.Errorf("cache: table %s: row (%d bytes) must be a positive multiple of %s's %d bytes", name, rowBytes, of, of.Size())
	case len(data)%rowBytes != 0:
		return Table{}, fmt.Errorf("cache: table %s: data (%d bytes) must be a multiple of the row (%d bytes)", name, len(data), rowBytes)
	}
	t := Table{name: name, dtype: of, source: transfer.SourceOf(data, rowBytes), kind: inMemory{}, close: func() error { return nil }, used: new(atomic.Bool)}
	if len(data) == 0 {
		t.stamp = "no rows"
	}
	return t, nil
}

// FromReader returns a table whose rows read delivers: it fills dst, a whole number of rows long, with the rows from number row on. New calls it
// for every row once, in any order, from several goroutines at once. closed, if not nil, is called when New has succeeded, or by Table.Close.
func FromReader(name string, of dtype.Type, rows int64, rowBytes int, read func(row int64, dst []byte) error, closed func() error) (Table, error) {
	if rows < 0 || rows > hashmap.MaxRows {
		return Table{}, fmt.Errorf("cache: table %s: rows (%d) must be 0 to 2^50 - 2", name, rows)
	}
	t, err := FromBytes(name, of, nil, rowBytes)
	if err != nil {
		return Table{}, err
	}
	t.source, t.stamp = reader{rows, rowBytes, read}, ""
	if closed != nil {
		t.close = closed
	}
	return t, nil
}

// reader is the transfer.Ranged of FromReader.
type reader struct {
	rows     int64
	rowBytes int
	read     func(row int64, dst []byte) error
}

func (r reader) Rows() int     { return int(r.rows) }
func (r reader) RowBytes() int { return r.rowBytes }

func (r reader) Read([]byte) (int, error) { return 0, errors.ErrUnsupported } // never called: ReadFrom is there

func (r reader) ReadFrom(row int64, dst []byte) error { return r.read(row, dst) }

// Adopt is FromBytes without the copy: mem itself becomes the host tier of the table. New compresses the rows in their places, and page-locks
// the memory for GPUs if it is not page-locked already. The rows keep their distance, so compression saves transfers, not memory.
//
// From New until Close the memory is the cache's: nobody may read or write it, nor unmap or unlock it. Close leaves what it then holds, compressed rows,
// or the rows if RestoreOnClose is set. If New fails, the rows are as they were.
//
// mem must begin at a page, and be anonymous or shared memory outside the Go heap: of mmap, memfd_create, a file under /dev/shm, C's
// aligned_alloc or cuMemHostAlloc, for example a pinned tensor. Rows must be multiples of 4 bytes. Adopt returns an error for other memory, among it
// mapped files and read-only mappings; FromBytes copies it. New returns an error for an adopted table if Options.Host.Tier is Packed, if the
// codec is lossy, if the table has a larger capacity, or if a table of any cache has adopted a part of mem. Only Linux can adopt memory.
func Adopt(name string, of dtype.Type, mem []byte, rowBytes int) (Table, error) {
	t, err := FromBytes(name, of, mem, rowBytes)
	if err != nil {
		return Table{}, err
	}
	if err := transfer.CheckAdoptable(mem, rowBytes); err != nil {
		return Table{}, fmt.Errorf("cache: table %s: %w; FromBytes copies it instead", name, err)
	}
	t.kind = inMemory{adopt: mem}
	return t, nil
}

// Open returns the table of an .npy file, of an array of an .npz archive or a .safetensors file, or of a directory of page files as `cachebench pack`
// writes it: see FromPages. The array is named after a colon
// ("f.npz:x"); without a name it is "features", else the only array of rank ≥ 2. The last axis is the row. Arrays of a structured dtype have rows
// of parts (dtype.RowOf), as have tensors of a .safetensors file that are joined by a plus between their names ("f.safetensors:values+scales"). Of a checkpoint of several .safetensors files, a folder with its index, the rows of
// tensors that match a pattern follow each other ("folder:model.*.weight+model.*.scale"). Elements of .npy files
// that are one void byte, as ml_dtypes saves Float8E4M3FN and Float8E8M0FNU, are Uint8 unless WithDType says what. The rows of several files follow each other: of paths one a
// line, or of those that a pattern such as "part-*.npy" matches, in natural order ("part-2" before "part-10"). New reads
// and closes the table. A table that no New has succeeded with must be closed with Close. New reads the table on all
// processors, except compressed arrays and those in Fortran order, which it reads on one.
func Open(path string) (Table, error) {
	return open(path, func() (tablefile.File, []int, error) {
		f, err := tablefile.Open(path)
		return f, nil, err
	})
}

// OpenArray is Open for arrays whose first axis numbers the rows, as NumPy has it. The other axes are the row, and there need not be any.
func OpenArray(path string) (Table, error) {
	return open(path, func() (tablefile.File, []int, error) { return tablefile.OpenArray(path) })
}

func open(path string, file func() (tablefile.File, []int, error)) (Table, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() && !tablefile.IsCheckpoint(path) {
		return openPages(path)
	}
	f, shape, err := file()
	if err != nil {
		return Table{}, err
	}
	t := Table{name: f.Name(), dtype: f.DType(), source: f, kind: inMemory{}, close: f.Close, used: new(atomic.Bool), shape: shape}
	if _, ranged := f.(transfer.Ranged); !ranged {
		s := &sequential{File: f, again: func() (tablefile.File, error) {
			f, _, err := file()
			return f, err
		}}
		t.source, t.close = s, s.Close
	}
	if err := t.validate(); err != nil {
		return Table{}, errors.Join(err, f.Close())
	}
	if stamp, err := tablefile.Stamp(f); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			t.stamp = path + "\n" + stamp
		}
	}
	return t, nil
}

// sequential is a file whose rows can only be read one after the other.
type sequential struct {
	tablefile.File
	again func() (tablefile.File, error) // opens the file once more
	read  bool                           // some rows have been read
}

func (s *sequential) Read(dst []byte) (rows int, err error) {
	s.read = true
	return s.File.Read(dst)
}

func (s *sequential) Close() error { return s.File.Close() }

// rewind makes Read begin with the first row. It opens the file again if a New that has failed has read rows.
func (s *sequential) rewind() error {
	if !s.read {
		return nil
	}
	f, err := s.again()
	if err != nil {
		return err
	}
	if f.Rows() != s.Rows() || f.RowBytes() != s.RowBytes() || f.DType() != s.File.DType() {
		err := fmt.Errorf("file has become %d rows of %d bytes of %v: it must have the %d rows of %d bytes of %v that it was opened with",
			f.Rows(), f.RowBytes(), f.DType(), s.Rows(), s.RowBytes(), s.File.DType())
		return errors.Join(err, f.Close())
	}
	err = s.File.Close()
	s.File, s.read = f, false
	return err
}

// Name returns the table's name, for reports and errors.
func (t Table) Name() string { return t.name }

// Rows returns the number of rows.
func (t Table) Rows() int { return t.source.Rows() }

// RowBytes returns the length of a row.
func (t Table) RowBytes() int { return t.source.RowBytes() }

// Shape returns the axes of the array, the rows first: those of the file for OpenArray, else the rows and the elements of a row, which of rows of parts are
// bytes.
func (t Table) Shape() []int {
	if t.shape != nil {
		return slices.Clone(t.shape)
	}
	size := t.dtype.Size()
	if t.dtype.IsRow() {
		size = 1
	}
	return []int{t.Rows(), t.RowBytes() / size}
}

// WithCapacity returns the table with room for the given number of rows in all, at most 2^50 - 2, which Cache.Update can insert. New
// allocates host memory for all of them. A capacity below the number of rows is ignored. A table with a capacity may begin without
// rows; its rows are stored uncompressed, because there is nothing to train a codec on.
func (t Table) WithCapacity(rows int64) Table {
	t.capacity = rows
	return t
}

// WithCodec returns the table with a codec of its own. With "", Options.Codec applies.
func (t Table) WithCodec(name Codec) Table {
	t.codec = name
	return t
}

// WithDType returns the table with its elements read as another type of the same length, such as the Uint8 of a file as
// Float8E4M3FN, or its rows as rows of parts that are as long. The rows' bytes stay as they are. It returns an error for types of another
// length, and for page files unless it is their type.
func (t Table) WithDType(of dtype.Type) (Table, error) {
	if err := t.kind.checkAs(&t, of); err != nil {
		return t, err
	}
	if err := of.CheckAs(t.dtype, t.RowBytes()); err != nil {
		return t, fmt.Errorf("cache: table %s: %w", t.name, err)
	}
	t.dtype = of
	return t, nil
}

// WithName returns the table with another name.
func (t Table) WithName(name string) Table {
	t.name = name
	return t
}

// RestoreOnClose returns an adopted table whose memory has the rows again after Cache.Close, with all updates. Close then decompresses them on
// all processors. For tables that are not adopted it changes nothing.
func (t Table) RestoreOnClose() Table {
	if m, ok := t.kind.(inMemory); ok {
		m.restore = true
		t.kind = m
	}
	return t
}

// DType returns the element type.
func (t Table) DType() dtype.Type { return t.dtype }

// Close releases a table that no New has succeeded with.
func (t Table) Close() error { return t.close() }

func (t Table) validate() error {
	if t.source == nil {
		return errors.New("cache: table must come from Open, FromSlice, FromBytes or FromReader")
	}
	if n := t.RowBytes(); n > slab.MaxRowBytes {
		return fmt.Errorf("cache: table %s: row (%d bytes) must be shorter than 1 MiB (%d)", t.name, n, slab.MaxRowBytes+1)
	}
	if n := int64(t.Rows()); n < 1 && t.capacity < 1 || n > hashmap.MaxRows {
		return fmt.Errorf("cache: table %s: rows (%d) must be 1 to 2^50 - 2, or 0 in a table with a capacity", t.name, n)
	}
	if err := t.kind.check(&t); err != nil {
		return err
	}
	if t.codec != "" {
		if err := registry.Check(string(t.codec)); err != nil {
			return fmt.Errorf("cache: table %s: %w", t.name, err)
		}
	}
	if t.capacity < 0 || t.capacity > hashmap.MaxRows {
		return fmt.Errorf("cache: table %s: capacity (%d) must be 0 to 2^50 - 2", t.name, t.capacity)
	}
	return nil
}

// AsBytes returns the memory of values as bytes, for example as the output of Gather.
func AsBytes[T Element](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}
