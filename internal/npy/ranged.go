package npy

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Ranged reads the rows of an .npy file in any order. ReadFrom is safe for concurrent use; the other methods are those of the Reader.
type Ranged struct {
	*Reader
	file *os.File
}

// Ranged returns a reader of the same rows, or nil if they must be read in order: those of archives, whose CRC is that of all bytes in order,
// and arrays in Fortran order. It is closed with r.
func (r *Reader) Ranged() *Ranged {
	f, ok := r.file.(*os.File)
	if !ok || r.member != nil || r.head.fortran && len(r.head.shape) > 1 {
		return nil
	}
	return &Ranged{r, f}
}

// ReadFrom fills dst, a whole number of rows long, with the rows from number row on, which must all exist. Where the last row is among them,
// it also checks that the file ends there. Errors name the file and the offset.
func (r *Ranged) ReadFrom(row int64, dst []byte) error {
	if len(dst)%r.rowBytes != 0 || row < 0 || row > int64(r.rows) || int64(len(dst)/r.rowBytes) > int64(r.rows)-row {
		return inFile(r.name, fmt.Errorf("rows from %d on (%d bytes) must be whole rows of %d bytes below %d", row, len(dst), r.rowBytes, r.rows))
	}
	at := r.head.bytes + row*int64(r.rowBytes)
	if n, err := r.file.ReadAt(dst, at); n < len(dst) {
		if info, statErr := r.file.Stat(); err == io.EOF && statErr == nil {
			if short := r.head.checkData(min(info.Size()-r.head.bytes, r.dataBytes()), r.dataBytes()); short != nil {
				err = short
			}
		}
		return inFile(r.name, readError(fmt.Sprintf("reading at byte %d", at+int64(n)), err))
	}
	if end := r.head.bytes + r.dataBytes(); at+int64(len(dst)) == end {
		var more [1]byte
		switch n, err := r.file.ReadAt(more[:], end); {
		case n > 0:
			return inFile(r.name, r.head.checkData(r.dataBytes()+1, r.dataBytes()))
		case !errors.Is(err, io.EOF):
			return inFile(r.name, readError(fmt.Sprintf("reading at byte %d", end), err))
		}
	}
	if r.head.big {
		swapBytes(dst, r.head.dtype.Size())
	}
	return nil
}
