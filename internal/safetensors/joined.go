package safetensors

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

// Joined reads the rows of several tensors of a file, with as many rows each, as rows of parts: row n is row n of each, one behind the other.
type Joined struct {
	name     string
	parts    []*Reader
	of       dtype.Type
	rowBytes int
	next     int64 // row that Read reads next
}

// joinedBytes is about how much of each tensor is read at a time.
const joinedBytes = 1 << 20

// OpenJoined opens the tensors at a path like "f.safetensors:values+scales". It returns nil without an error if the path names fewer than two,
// or a tensor that has a plus in its name. Tensors of rank 1 have one element a row.
func OpenJoined(path string) (j *Joined, err error) {
	file, name := Split(path)
	names := strings.Split(name, "+")
	if len(names) < 2 {
		return nil, nil
	}
	f, size, err := datafile.Open(file)
	if err != nil {
		return nil, inFile(file, err)
	}
	tensors, _, err := readHeader(f, size)
	f.Close()
	if err != nil {
		return nil, inFile(file, err)
	}
	if slices.ContainsFunc(tensors, func(t tensor) bool { return t.name == name }) {
		return nil, nil
	}
	j = &Joined{name: path}
	defer func() {
		if err != nil {
			j.Close()
			j = nil
		}
	}()
	for _, one := range names {
		r, err := Open(file+":"+one, 1)
		if err != nil {
			return j, err
		}
		j.parts = append(j.parts, r)
	}
	return j, j.join()
}

// join sets what follows from the parts.
func (j *Joined) join() (err error) {
	var parts []dtype.Part
	for _, r := range j.parts {
		if first := j.parts[0]; r.rows != first.rows {
			return inFile(j.name, fmt.Errorf("rows (%d) of tensor %q must be the %d of %q", r.rows, datafile.Clip(r.tensor.name), first.rows, datafile.Clip(first.tensor.name)))
		}
		parts = append(parts, dtype.Part{Type: r.DType(), Count: r.rowBytes / r.DType().Size()})
		j.rowBytes += r.rowBytes
	}
	if len(parts) == 1 {
		j.of = parts[0].Type
		return nil
	}
	j.of, err = dtype.RowOf(parts...)
	return inFile(j.name, err)
}

// Name returns path:tensors.
func (j *Joined) Name() string { return j.name }

// DType returns the type of the rows: that of the elements if all tensors have the same.
func (j *Joined) DType() dtype.Type { return j.of }

// Rows returns the number of rows of each tensor.
func (j *Joined) Rows() int { return j.parts[0].rows }

// RowBytes returns the bytes of a row of all tensors.
func (j *Joined) RowBytes() int { return j.rowBytes }

// Read is that of Reader.
func (j *Joined) Read(dst []byte) (rows int, err error) {
	if j.next == int64(j.Rows()) {
		return 0, io.EOF
	}
	n := int(min(int64(len(dst)/j.rowBytes), int64(j.Rows())-j.next))
	if len(dst)%j.rowBytes == 0 {
		dst = dst[:n*j.rowBytes]
	}
	if err := j.ReadFrom(j.next, dst); err != nil {
		return 0, err
	}
	j.next += int64(n)
	return n, nil
}

// ReadFrom is that of Reader.
func (j *Joined) ReadFrom(row int64, dst []byte) error {
	if len(dst)%j.rowBytes != 0 || row < 0 || row > int64(j.Rows()) || int64(len(dst)/j.rowBytes) > int64(j.Rows())-row {
		return inFile(j.name, fmt.Errorf("rows from %d on (%d bytes) must be whole rows of %d bytes below %d", row, len(dst), j.rowBytes, j.Rows()))
	}
	if len(j.parts) == 1 {
		return j.parts[0].ReadFrom(row, dst)
	}
	var piece []byte
	for rows := len(dst) / j.rowBytes; rows > 0; {
		n, at := min(rows, max(1, joinedBytes/j.rowBytes)), 0
		for _, p := range j.parts {
			piece = slices.Grow(piece[:0], n*p.rowBytes)[:n*p.rowBytes]
			if err := p.ReadFrom(row, piece); err != nil {
				return err
			}
			for i := range n {
				copy(dst[i*j.rowBytes+at:], piece[i*p.rowBytes:][:p.rowBytes])
			}
			at += p.rowBytes
		}
		dst, row, rows = dst[n*j.rowBytes:], row+int64(n), rows-n
	}
	return nil
}

// Maps reports that Map returns nil: the rows do not lie in the file as they are.
func (j *Joined) Maps() bool { return false }

// Map returns nil.
func (j *Joined) Map() ([]byte, error) { return nil, nil }

// Close closes the file. Closing twice is no error.
func (j *Joined) Close() (err error) {
	for _, p := range j.parts {
		err = errors.Join(err, p.Close())
	}
	return err
}
