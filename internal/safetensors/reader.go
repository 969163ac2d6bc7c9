package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

// Reader reads the rows of one tensor.
type Reader struct {
	name     string
	tensor   tensor
	data     io.ReaderAt // nil once it is closed
	file     *os.File    // that data is; nil if it is none
	begin    int64       // of the data in the file
	end      int64       // of the file
	rows     int
	rowBytes int
	next     int64 // row that Read reads next
}

// nameEnd is where the name of a file ends and that of a tensor begins.
var nameEnd = regexp.MustCompile(`(?i)\.safetensors:`)

// Split splits "f.safetensors:name" into file and tensor. A file whose name has the colon wins; the tensor is then empty.
func Split(path string) (file, tensor string) { return datafile.Split(path, nameEnd) }

// Open opens the tensor at path: "f.safetensors:name" names it, unless a file of that very name exists. Without a name, the first of prefer that
// the file has is opened; if it has none of them, the only tensor, or the only one that can be opened with at least minRank axes.
// Otherwise the error lists the tensors.
//
// Open reads and checks the header (see the package comment). The tensor must have at least minRank axes (at least 1), all of them at
// least 1, and an element type of package dtype. The error of a missing file is fs.ErrNotExist. Errors name the file, or path:tensor.
func Open(path string, minRank int, prefer ...string) (*Reader, error) {
	file, name := Split(path)
	f, size, err := datafile.Open(file)
	if err != nil {
		return nil, inFile(file, err)
	}
	r, err := open(file, f, size, name, max(minRank, 1), prefer)
	if err != nil {
		f.Close()
		return nil, inFile(file, err)
	}
	r.file, r.data = f, f
	return r, nil
}

func inFile(name string, err error) error { return datafile.Named("safetensors", name, err) }

// open opens a tensor of the size bytes of f, without the file.
func open(file string, f io.ReaderAt, size int64, name string, minRank int, prefer []string) (*Reader, error) {
	tensors, begin, err := readHeader(f, size)
	if err != nil {
		return nil, err
	}
	t, err := choose(tensors, name, minRank, prefer)
	if err != nil {
		return nil, err
	}
	return newReader(file, t, begin, size, minRank)
}

// newReader returns a reader of a tensor of a file of size bytes, whose data begin at a byte. It has no file yet.
func newReader(file string, t *tensor, data, size int64, minRank int) (*Reader, error) {
	r := &Reader{name: file + ":" + t.name, tensor: *t, begin: data + t.from, end: size}
	if err := t.check(minRank); err != nil {
		return nil, inFile(r.name, err)
	}
	r.rowBytes = t.dtype.Size()
	if len(t.shape) > 1 {
		r.rowBytes *= t.shape[len(t.shape)-1]
	}
	r.rows = int((t.to - t.from) / int64(r.rowBytes))
	return r, nil
}

// choose returns the tensor to open.
func choose(tensors []tensor, name string, minRank int, prefer []string) (*tensor, error) {
	if len(tensors) == 0 {
		return nil, errors.New("file (0 tensors) must have a tensor")
	}
	var names []string
	var fits []*tensor
	byName := make(map[string]*tensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		names = append(names, t.name)
		byName[t.name] = t
		if t.check(minRank) == nil {
			fits = append(fits, t)
		}
	}
	if name != "" {
		if t := byName[name]; t != nil {
			return t, nil
		}
		return nil, datafile.Misnamed("tensor (%q) must be one of %s", datafile.Clip(name), datafile.List(names))
	}
	for _, name := range prefer {
		if t := byName[name]; t != nil {
			return t, nil
		}
	}
	switch {
	case len(tensors) == 1:
		return &tensors[0], nil
	case len(fits) == 1:
		return fits[0], nil
	}
	return nil, datafile.Misnamed("tensors of rank %d or more (%d) must be one, or be chosen as FILE.safetensors:NAME from %s", minRank, len(fits), datafile.List(names))
}

// check returns why a tensor cannot be opened, or nil.
func (t *tensor) check(minRank int) error {
	switch {
	case t.dtype == dtype.Invalid:
		return errType(datafile.Clip(t.stored))
	case len(t.shape) < minRank:
		return fmt.Errorf("rank (%d) of shape %v must be at least %d", len(t.shape), t.shape, minRank)
	case slices.Contains(t.shape, 0):
		return fmt.Errorf("shape %s must have axes of at least 1", datafile.Clip(fmt.Sprint(t.shape)))
	}
	return nil
}

// Name returns path:tensor.
func (r *Reader) Name() string { return r.name }

// DType returns the type of the elements.
func (r *Reader) DType() dtype.Type { return r.tensor.dtype }

// Shape returns the axes in elements, all of them positive. It is the caller's copy.
func (r *Reader) Shape() []int { return slices.Clone(r.tensor.shape) }

// Rows returns the number of rows: the product of all axes but the last, or the number of elements of a rank-1 tensor.
func (r *Reader) Rows() int { return r.rows }

// RowBytes returns the bytes of a row: the last axis times the bytes of an element, or the bytes of an element of a rank-1 tensor.
func (r *Reader) RowBytes() int { return r.rowBytes }

// Read fills dst, a whole number of rows long, with the next rows, as many as fit and are left, and returns their number; io.EOF when none
// is left. After an error the same rows can be read again.
func (r *Reader) Read(dst []byte) (rows int, err error) {
	if r.next == int64(r.rows) {
		return 0, io.EOF
	}
	n := int(min(int64(len(dst)/r.rowBytes), int64(r.rows)-r.next))
	if len(dst)%r.rowBytes == 0 {
		dst = dst[:n*r.rowBytes]
	}
	if err := r.ReadFrom(r.next, dst); err != nil {
		return 0, err
	}
	r.next += int64(n)
	return n, nil
}

// ReadFrom fills dst, a whole number of rows long, with the rows from number row on, which must all exist. Where the last row is among them,
// it also checks that the file has not grown. Errors name the file and the offset.
func (r *Reader) ReadFrom(row int64, dst []byte) error {
	if len(dst)%r.rowBytes != 0 || row < 0 || row > int64(r.rows) || int64(len(dst)/r.rowBytes) > int64(r.rows)-row {
		return inFile(r.name, fmt.Errorf("rows from %d on (%d bytes) must be whole rows of %d bytes below %d", row, len(dst), r.rowBytes, r.rows))
	}
	if r.data == nil {
		return inFile(r.name, errors.New("reader (closed) must be open"))
	}
	at := r.begin + row*int64(r.rowBytes)
	if n, err := r.data.ReadAt(dst, at); n < len(dst) {
		return inFile(r.name, datafile.ReadError(fmt.Sprintf("reading at byte %d", at+int64(n)), err))
	}
	if r.file != nil && row+int64(len(dst)/r.rowBytes) == int64(r.rows) {
		if n, _ := r.file.ReadAt(make([]byte, 1), r.end); n > 0 {
			return inFile(r.name, fmt.Errorf("file must end at byte %d, where it ended when it was opened", r.end))
		}
	}
	return nil
}

// Maps reports whether Map returns the data.
func (r *Reader) Maps() bool { return datafile.CanMap && r.file != nil }

// Map returns the tensor's data as they lie in the file, mapped into memory as by datafile.Map, or nil if this system does not map files.
func (r *Reader) Map() ([]byte, error) {
	if !r.Maps() {
		return nil, nil
	}
	data, err := datafile.Map(r.file, r.begin, r.tensor.to-r.tensor.from)
	return data, inFile(r.name, err)
}

// Close closes the file; the Reader is of no use afterwards. Closing twice is no error.
func (r *Reader) Close() error {
	file := r.file
	r.file, r.data = nil, nil
	if file == nil {
		return nil
	}
	return file.Close()
}
