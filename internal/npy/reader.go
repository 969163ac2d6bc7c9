package npy

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// bufferBytes is large enough that a system call, or a call into inflate, costs
// nothing per row; reads at least as large go straight to the caller's memory.
const bufferBytes = 256 << 10

// Reader reads one array, row by row. It is not safe for concurrent use.
type Reader struct {
	name     string
	head     header
	rows     int
	rowBytes int
	backed   bool // the bytes of the data are known to exist: they may be allocated at once

	src     *bufio.Reader
	file    io.Closer    // or nil
	member  *zip.File    // nil in an .npy file
	left    int          // rows not yet handed out
	got     int64        // data bytes taken from src
	array   *numa.Memory // of an array in Fortran order, while its rows are read
	fortran *transposer
	err     error // sticky
}

// Open opens the array at path, which is an .npy file or an .npz archive (told apart
// by content, not by name).
//
// "f.npz:features" names an array of an archive, unless a file of that very name
// exists. Without a name, the first of prefer that the archive has is opened; if it
// has none of them, the only array with at least minRank axes. Otherwise the error is
// ErrArray and lists the arrays.
//
// Open reads and checks the header and compares the bytes present with those that the
// shape needs. It returns ErrFormat for corrupt or truncated files, ErrDType for
// element types that DType does not have, ErrShape for fewer than minRank axes
// (at least 1), for zero-length axes and for arrays whose bytes overflow an int, and
// an error that is fs.ErrNotExist for a missing file.
func Open(path string, minRank int, prefer ...string) (*Reader, error) {
	file, array, named := splitPath(path)
	f, size, err := openFile(file)
	if err != nil {
		return nil, err
	}
	c := choice{minRank: max(minRank, 1), prefer: prefer, array: array, named: named}
	r, err := open(file, f, size, c)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

// choice says which array to open.
type choice struct {
	minRank int
	prefer  []string
	array   string // the one to open, if named
	named   bool
}

// open opens an array of the size bytes of f. It does not take ownership of f.
func open(file string, f io.ReaderAt, size int64, c choice) (*Reader, error) {
	archived, err := isArchive(file, f)
	if err != nil {
		return nil, err
	}
	if archived {
		a, err := newArchive(file, f, size)
		if err != nil {
			return nil, err
		}
		return a.choose(c)
	}
	if c.named {
		return nil, inFile(file, faultf(ErrFormat, "array (%q) must be asked of an .npz archive: the file is none", clip(c.array)))
	}
	// The section does not end at size, so that a file that grows meanwhile is noticed.
	return newReader(file, io.NewSectionReader(f, 0, math.MaxInt64), size, true, c.minRank)
}

// newReader reads the header of the array that src yields in size bytes.
func newReader(name string, src io.Reader, size int64, backed bool, minRank int) (*Reader, error) {
	h, err := readHeader(src, size)
	if err != nil {
		return nil, inFile(name, err)
	}
	dataBytes, err := h.checkSize(minRank)
	if err != nil {
		return nil, inFile(name, err)
	}
	if err := h.checkData(size-h.bytes, int64(dataBytes)); err != nil {
		return nil, inFile(name, err)
	}
	r := &Reader{
		name: name, head: h, backed: backed,
		rowBytes: h.dtype.Size(),
		src:      bufio.NewReaderSize(src, min(dataBytes, bufferBytes)),
	}
	if len(h.shape) > 1 {
		r.rowBytes *= h.shape[len(h.shape)-1]
	}
	r.rows = dataBytes / r.rowBytes
	r.left = r.rows
	return r, nil
}

// splitPath splits "f.npz:features". A file whose name has a colon wins.
func splitPath(path string) (file, array string, named bool) {
	if _, err := os.Stat(path); err == nil {
		return path, "", false
	}
	const ext = ".npz"
	for i, c := range []byte(path) {
		if c == ':' && i >= len(ext) && strings.EqualFold(path[i-len(ext):i], ext) {
			return path[:i], path[i+1:], true
		}
	}
	return path, "", false
}

// openFile opens a regular file.
func openFile(file string) (*os.File, int64, error) {
	// Before opening, because opening a pipe would wait for its writer.
	info, err := os.Stat(file)
	if err == nil {
		if info.IsDir() {
			return nil, 0, inFile(file, faultf(ErrFormat, "path (a directory) must be a file"))
		}
		if !info.Mode().IsRegular() {
			return nil, 0, inFile(file, faultf(ErrFormat, "file (mode %v) must be a regular file", info.Mode()))
		}
	}
	f, err := os.Open(file)
	if err == nil {
		if info, err = f.Stat(); err == nil {
			return f, info.Size(), nil
		}
		f.Close()
	}
	return nil, 0, inFile(file, ioFault("open", err))
}

// isArchive tells an archive from an .npy file and rejects everything else.
func isArchive(file string, f io.ReaderAt) (bool, error) {
	var first [len(magic)]byte
	n, err := f.ReadAt(first[:], 0)
	if err != nil && err != io.EOF {
		return false, inFile(file, ioFault("reading the first bytes", err))
	}
	if n >= 2 && string(first[:2]) == "PK" {
		return true, nil
	}
	if n == 0 || string(first[:n]) != magic[:n] {
		return false, inFile(file, errMagic(string(first[:n])))
	}
	return false, nil
}

// Name returns the path, or path:array for an array of an archive.
func (r *Reader) Name() string { return r.name }

// DType returns the type of the elements.
func (r *Reader) DType() dtype.Type { return r.head.dtype }

// Shape returns the axes in elements, all of them positive. It is the caller's copy.
func (r *Reader) Shape() []int { return slices.Clone(r.head.shape) }

// Rows returns the number of rows of the array, read or not: the product of all axes
// but the last, or the number of elements of a rank-1 array.
func (r *Reader) Rows() int { return r.rows }

// RowBytes returns the bytes of a row: the last axis times the bytes of an element, or
// the bytes of an element of a rank-1 array. Nothing but the size of the file bounds
// it (see the package comment), so check it before allocating.
func (r *Reader) RowBytes() int { return r.rowBytes }

// Read fills dst with the next rows, as many as fit and are left, and returns their
// number; io.EOF when none is left. len(dst) must be a multiple of RowBytes.
//
// Elements come out little-endian, rows in C order. An array in Fortran order is
// loaded into memory by the first Read.
//
// Any other error is final: Read repeats it. Truncation, a CRC that does not hold and
// bytes after the data are ErrFormat and come in place of the rows of the call that
// would have been the last, so who reads Rows rows has read a sound array.
func (r *Reader) Read(dst []byte) (rows int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(dst)%r.rowBytes != 0 {
		return 0, inFile(r.name, faultf(nil, "destination bytes (%d) must be a multiple of the row bytes (%d)", len(dst), r.rowBytes))
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	rows = min(len(dst)/r.rowBytes, r.left)
	if rows == 0 {
		return 0, nil
	}
	dst = dst[:rows*r.rowBytes]
	if r.head.fortran && len(r.head.shape) > 1 {
		err = r.readFortran(dst)
	} else {
		err = r.fill(dst)
	}
	if err != nil {
		r.err = inFile(r.name, err)
		return 0, r.err
	}
	if r.head.big {
		swapBytes(dst, r.head.dtype.Size())
	}
	r.left -= rows
	if r.left == 0 {
		r.release()
	}
	return rows, nil
}

// fill reads the next bytes of the data, in the order of the file, and checks that
// the array ends where it should.
func (r *Reader) fill(dst []byte) error {
	n, err := io.ReadFull(r.src, dst)
	r.got += int64(n)
	if err != nil {
		return r.dataFault(err)
	}
	if r.got < r.dataBytes() {
		return nil
	}
	return r.checkEnd()
}

// checkEnd makes the archive check its CRC, which it does at the end of the member.
func (r *Reader) checkEnd() error {
	switch _, err := r.src.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return r.head.checkData(r.got+1, r.dataBytes())
	default:
		return r.dataFault(err)
	}
}

func (r *Reader) dataBytes() int64 { return int64(r.rows) * int64(r.rowBytes) }

func (r *Reader) dataFault(err error) error {
	if isEOF(err) && r.got < r.dataBytes() {
		return r.head.checkData(r.got, r.dataBytes())
	}
	return ioFault(fmt.Sprintf("reading after %d of %d data bytes", r.got, r.dataBytes()), err)
}

// readFortran loads the array on the first call, then hands out transposed rows.
func (r *Reader) readFortran(dst []byte) error {
	if r.fortran == nil {
		data, err := r.readAll()
		if err != nil {
			return err
		}
		r.fortran = newTransposer(data, r.head.shape, r.head.dtype.Size())
	}
	for ; len(dst) > 0; dst = dst[r.rowBytes:] {
		r.fortran.next(dst[:r.rowBytes])
	}
	return nil
}

// readAll reads all data, into memory that release frees. The system gives it pages as data arrive, so that a header cannot make it
// take more memory than the file has data.
func (r *Reader) readAll() (data []byte, err error) {
	if r.array, err = numa.New(r.dataBytes()); err != nil {
		return nil, &fault{text: fmt.Sprintf("array (%d bytes) must fit in memory", r.dataBytes()), cause: err}
	}
	return r.array.Bytes(), r.fill(r.array.Bytes())
}

// release frees the memory of readAll.
func (r *Reader) release() {
	r.fortran = nil
	if r.array != nil {
		r.array.Free()
		r.array = nil
	}
}

// ReadInts reads the rest of a rank-1 array of integers, signed or unsigned, as int64.
// It returns ErrShape for another rank, ErrDType for another type or for a value that
// does not fit (the error names the first one and its index), and Read's errors.
func (r *Reader) ReadInts() ([]int64, error) {
	if rank := len(r.head.shape); rank != 1 {
		return nil, inFile(r.name, faultf(ErrShape, "rank (%d) of shape %s must be 1", rank, shapeString(r.head.shape)))
	}
	if !r.head.dtype.IsInt() {
		return nil, inFile(r.name, faultf(ErrDType, "dtype (%s) must be an integer", r.head.dtype))
	}
	var ints []int64
	if r.backed {
		ints = make([]int64, 0, r.left)
	}
	buf := make([]byte, min(r.left*r.rowBytes, bufferBytes))
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			return ints, nil
		}
		if err != nil {
			return nil, err
		}
		if ints, err = appendInts(ints, buf[:n*r.rowBytes], r.head.dtype, r.rows-r.left-n); err != nil {
			return nil, inFile(r.name, err)
		}
	}
}

// appendInts appends little-endian elements, of which the first has the given index.
func appendInts(ints []int64, b []byte, d dtype.Type, index int) ([]int64, error) {
	le := binary.LittleEndian
	for size := d.Size(); len(b) > 0; b, index = b[size:], index+1 {
		var v int64
		switch d {
		case dtype.Int8:
			v = int64(int8(b[0]))
		case dtype.Int16:
			v = int64(int16(le.Uint16(b)))
		case dtype.Int32:
			v = int64(int32(le.Uint32(b)))
		case dtype.Int64:
			v = int64(le.Uint64(b))
		case dtype.Uint8:
			v = int64(b[0])
		case dtype.Uint16:
			v = int64(le.Uint16(b))
		case dtype.Uint32:
			v = int64(le.Uint32(b))
		case dtype.Uint64:
			u := le.Uint64(b)
			if u > math.MaxInt64 {
				return nil, faultf(ErrDType, "value (%d) at index %d must fit in int64", u, index)
			}
			v = int64(u)
		}
		ints = append(ints, v)
	}
	return ints, nil
}

// Close closes the file; the Reader is of no use afterwards. Closing twice is no error.
func (r *Reader) Close() error {
	if errors.Is(r.err, ErrClosed) {
		return nil
	}
	r.err = inFile(r.name, faultf(ErrClosed, "reader (closed) must be open"))
	r.release()
	if r.file == nil {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return inFile(r.name, ioFault("close", err))
	}
	return nil
}

// swapBytes reverses the bytes of every element of size 1, 2, 4 or 8.
func swapBytes(b []byte, size int) {
	le := binary.LittleEndian
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			le.PutUint16(b, bits.ReverseBytes16(le.Uint16(b)))
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			le.PutUint32(b, bits.ReverseBytes32(le.Uint32(b)))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			le.PutUint64(b, bits.ReverseBytes64(le.Uint64(b)))
		}
	}
}
