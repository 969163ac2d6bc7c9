package npy

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// bufferBytes is large enough that a system call, or a call into inflate, costs
// nothing per row; reads at least as large go straight to the caller's memory.
const bufferBytes = 256 << 10

// blockBytes is how much of an array in Fortran order is read at a time, and pieceBytes how much of it lies together at least: a read of
// less would cost more than the bytes.
const (
	blockBytes = 8 << 20
	pieceBytes = 512
)

// Reader reads one array, row by row. It is not safe for concurrent use.
type Reader struct {
	name     string
	head     header
	rows     int
	rowBytes int
	backed   bool // the bytes of the data are known to exist: they may be allocated at once

	src     *bufio.Reader
	file    io.Closer   // or nil
	member  *zip.File   // nil in an .npy file
	at      io.ReaderAt // where the data lie as they are, from byte begin on; nil if they are compressed
	begin   int64
	left    int          // rows not yet handed out
	got     int64        // data bytes taken from src
	array   *numa.Memory // of an array in Fortran order, or a block of one, while its rows are read
	block   int          // indexes of the first axis that a block has, 0 where there are none
	next    int          // index of the first axis that the next block begins with
	fortran *transposer  // nil before the first Read
	err     error        // sticky
}

// Open opens the array at path, which is an .npy file or an .npz archive (told apart
// by content, not by name).
//
// "f.npz:features" names an array of an archive, unless a file of that very name
// exists. Without a name, the first of prefer that the archive has is opened; if it
// has none of them, the only array with at least minRank axes. Otherwise the error
// lists the arrays.
//
// Open reads and checks the header and compares the bytes present with those that the
// shape needs. It rejects corrupt and truncated files, element types that dtype.Type does not
// have, fewer than minRank axes (at least 1), axes of length 0 and arrays whose bytes overflow
// an int. The error of a missing file is fs.ErrNotExist. Errors name the file, or path:array.
func Open(path string, minRank int, prefer ...string) (*Reader, error) {
	file, array := datafile.Split(path, archiveEnd)
	f, size, err := datafile.Open(file)
	if err != nil {
		return nil, inFile(file, err)
	}
	c := choice{minRank: max(minRank, 1), prefer: prefer, array: array}
	r, err := open(file, f, size, c)
	if err != nil {
		f.Close()
		return nil, inFile(file, err)
	}
	r.file = f
	return r, nil
}

// choice says which array to open.
type choice struct {
	minRank int
	prefer  []string
	array   string // the one to open, if not empty
}

// open opens an array of the size bytes of f. It does not take ownership of f.
func open(file string, f io.ReaderAt, size int64, c choice) (*Reader, error) {
	archived, err := isArchive(f)
	if err != nil {
		return nil, err
	}
	if archived {
		a, err := newArchive(file, f, size)
		if err != nil {
			return nil, err
		}
		array, err := a.choose(c)
		if err != nil {
			return nil, err
		}
		return a.open(array, c.minRank)
	}
	if c.array != "" {
		return nil, fmt.Errorf("array (%q) must be asked of an .npz archive: the file is none", clip(c.array))
	}
	// The section does not end at size, so that a file that grows meanwhile is noticed.
	r, err := newReader(file, io.NewSectionReader(f, 0, math.MaxInt64), size, true, c.minRank)
	if err == nil {
		r.at, r.begin = f, r.head.bytes
	}
	return r, err
}

// newReader reads the header of the array that src yields in size bytes.
func newReader(name string, src io.Reader, size int64, backed bool, minRank int) (*Reader, error) {
	h, err := readHeader(src, size)
	if err != nil {
		return nil, err
	}
	dataBytes, err := h.check(minRank)
	if err != nil {
		return nil, err
	}
	if err := h.checkData(size-h.bytes, int64(dataBytes)); err != nil {
		return nil, err
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

// archiveEnd is where the name of an archive ends and that of an array begins.
var archiveEnd = regexp.MustCompile(`(?i)\.npz:`)

// isArchive tells an archive from an .npy file and rejects everything else.
func isArchive(f io.ReaderAt) (bool, error) {
	var first [len(magic)]byte
	n, err := f.ReadAt(first[:], 0)
	if err != nil && err != io.EOF {
		return false, readError("reading the first bytes", err)
	}
	if n >= 2 && string(first[:2]) == "PK" {
		return true, nil
	}
	if n == 0 || string(first[:n]) != magic[:n] {
		return false, errMagic(string(first[:n]))
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
// Elements come out little-endian, rows in C order.
//
// Any other error is final: Read repeats it. Truncation, a CRC that does not hold and
// bytes after the data are errors that come in place of the rows of the call that
// would have been the last, so who reads Rows rows has read a sound array.
func (r *Reader) Read(dst []byte) (rows int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(dst)%r.rowBytes != 0 {
		return 0, inFile(r.name, fmt.Errorf("destination bytes (%d) must be a multiple of the row bytes (%d)", len(dst), r.rowBytes))
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	rows = min(len(dst)/r.rowBytes, r.left)
	if rows == 0 {
		return 0, nil
	}
	dst = dst[:rows*r.rowBytes]
	if r.fortranOrder() {
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

// fortranOrder says whether the bytes of a row do not lie together.
func (r *Reader) fortranOrder() bool { return r.head.fortran && len(r.head.shape) > 1 }

func (r *Reader) dataBytes() int64 { return int64(r.rows) * int64(r.rowBytes) }

func (r *Reader) dataFault(err error) error {
	if isEOF(err) && r.got < r.dataBytes() {
		return r.head.checkData(r.got, r.dataBytes())
	}
	return readError(fmt.Sprintf("reading after %d of %d data bytes", r.got, r.dataBytes()), err)
}

// readFortran hands out transposed rows. It loads the array block by block, or all of it on the first call.
func (r *Reader) readFortran(dst []byte) error {
	if r.fortran == nil {
		if err := r.loadFortran(blockBytes); err != nil {
			return err
		}
	}
	for ; len(dst) > 0; dst = dst[r.rowBytes:] {
		if r.fortran.ended {
			if err := r.readBlock(); err != nil {
				return err
			}
		}
		r.fortran.next(dst[:r.rowBytes])
	}
	return nil
}

// loadFortran prepares reading in blocks of about so many bytes, or loads the array.
func (r *Reader) loadFortran(block int64) error {
	size, first := int64(r.head.dtype.Size()), int64(r.head.shape[0])
	each := r.dataBytes() / first // bytes of an index of the first axis
	n := max(block/each, pieceBytes/size)
	if r.at == nil || 4*n > first { // blocks would save little
		data, err := r.readAll()
		if err == nil {
			r.fortran = newTransposer(data, r.head.shape, int(size))
		}
		return err
	}
	if r.member != nil { // check the CRC
		part := make([]byte, bufferBytes)
		for r.got < r.dataBytes() {
			if err := r.fill(part[:min(bufferBytes, r.dataBytes()-r.got)]); err != nil {
				return err
			}
		}
	}
	var err error
	if r.array, err = numa.New(n * each); err != nil {
		return fmt.Errorf("%d of the array's %d bytes must fit in memory: %w", n*each, r.dataBytes(), err)
	}
	r.block, r.fortran = int(n), &transposer{ended: true}
	return nil
}

// readBlock reads the indexes of the first axis that come next: of each column, and of whatever axes are between, one piece.
func (r *Reader) readBlock() error {
	size, first := r.head.dtype.Size(), r.head.shape[0]
	n := min(r.block, first-r.next)
	piece := n * size
	data := r.array.Bytes()[:int(r.dataBytes())/first*n]
	at := int64(r.next * size)
	for rest := data; len(rest) > 0; rest = rest[piece:] {
		if got, err := r.at.ReadAt(rest[:piece], r.begin+at); got < piece {
			r.got = at + int64(got)
			return r.dataFault(err)
		}
		at += int64(first * size)
	}
	if r.next += n; r.next == first && r.member == nil {
		if got, _ := r.at.ReadAt(make([]byte, 1), r.begin+r.dataBytes()); got > 0 {
			return r.head.checkData(r.dataBytes()+1, r.dataBytes())
		}
	}
	shape := slices.Clone(r.head.shape)
	shape[0] = n
	r.fortran = newTransposer(data, shape, size)
	return nil
}

// readAll reads all data, into memory that release frees. The system gives it pages as data arrive, so that a header cannot make it
// take more memory than the file has data.
func (r *Reader) readAll() (data []byte, err error) {
	if r.array, err = numa.New(r.dataBytes()); err != nil {
		return nil, fmt.Errorf("array (%d bytes) must fit in memory: %w", r.dataBytes(), err)
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
// An array of another rank or type is an error, and so is a value that does not fit.
func (r *Reader) ReadInts() ([]int64, error) {
	var ints []int64
	if r.backed && r.isInts() == nil {
		ints = make([]int64, 0, r.left)
	}
	err := r.VisitInts(func(part []int64) error {
		ints = append(ints, part...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ints, nil
}

func (r *Reader) isInts() error {
	if rank := len(r.head.shape); rank != 1 {
		return inFile(r.name, fmt.Errorf("rank (%d) of shape %s must be 1", rank, shapeString(r.head.shape)))
	}
	if !r.head.dtype.IsInt() {
		return inFile(r.name, fmt.Errorf("dtype (%s) must be an integer", r.head.dtype))
	}
	return nil
}

// VisitInts is ReadInts that passes the elements on in parts, in order, so that memory does not depend on the length of the array. An error of visit ends it
// and is returned as it is. The part is valid during the call.
func (r *Reader) VisitInts(visit func(part []int64) error) error {
	if err := r.isInts(); err != nil {
		return err
	}
	buf := make([]byte, min(r.left*r.rowBytes, bufferBytes))
	var part []int64
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if part, err = appendInts(part[:0], buf[:n*r.rowBytes], r.head.dtype, r.rows-r.left-n); err != nil {
			return inFile(r.name, err)
		}
		if err := visit(part); err != nil {
			return err
		}
	}
}

// appendInts appends little-endian elements, of which the first has the given index.
func appendInts(ints []int64, b []byte, d dtype.Type, index int) ([]int64, error) {
	switch d {
	case dtype.Int8:
		return widen[int8](ints, b), nil
	case dtype.Int16:
		return widen[int16](ints, b), nil
	case dtype.Int32:
		return widen[int32](ints, b), nil
	case dtype.Uint8:
		return widen[uint8](ints, b), nil
	case dtype.Uint16:
		return widen[uint16](ints, b), nil
	case dtype.Uint32:
		return widen[uint32](ints, b), nil
	}
	from := len(ints)
	ints = widen[int64](ints, b)
	if d == dtype.Uint64 {
		if i := slices.IndexFunc(ints[from:], func(v int64) bool { return v < 0 }); i >= 0 {
			return nil, fmt.Errorf("value (%d) at index %d must fit in int64", uint64(ints[from+i]), index+i)
		}
	}
	return ints, nil
}

// widen appends little-endian elements of type T.
func widen[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](ints []int64, b []byte) []int64 {
	values := make([]T, len(b)/binary.Size(T(0)))
	binary.Decode(b, binary.LittleEndian, values) // as long as b: it cannot fail
	for _, v := range values {
		ints = append(ints, int64(v))
	}
	return ints
}

// Close closes the file; the Reader is of no use afterwards. Closing twice is no error.
func (r *Reader) Close() error {
	r.err = inFile(r.name, errors.New("reader (closed) must be open"))
	r.release()
	file := r.file
	r.file = nil
	if file == nil {
		return nil
	}
	return file.Close()
}

// swapBytes reverses the bytes of every element.
func swapBytes(b []byte, size int) {
	for i := 0; i < len(b); i += size {
		slices.Reverse(b[i : i+size])
	}
}
