package npy

import (
	"archive/zip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Ranged reads the rows of an array in any order. ReadFrom is safe for concurrent use; the other methods are those of the Reader.
type Ranged struct {
	*Reader
	file *os.File
	sums sums // of a member's rows that have been read
}

// Ranged returns a reader of the same rows, or nil if they must be read in order: those of deflated members of archives and of arrays in
// Fortran order. It is closed with r.
func (r *Reader) Ranged() *Ranged {
	f, ok := r.file.(*os.File)
	if !ok || r.at == nil || r.fortranOrder() {
		return nil
	}
	return &Ranged{Reader: r, file: f}
}

// ReadFrom fills dst, a whole number of rows long, with the rows from number row on, which must all exist. Where the last row is among them,
// it also checks that an .npy file ends there. The CRC of an archive's member is checked as soon as calls whose rows do not overlap have read
// all rows: the error then comes in place of the rows of the last of these calls. Errors name the file and the offset.
func (r *Ranged) ReadFrom(row int64, dst []byte) error {
	if len(dst)%r.rowBytes != 0 || row < 0 || row > int64(r.rows) || int64(len(dst)/r.rowBytes) > int64(r.rows)-row {
		return inFile(r.name, fmt.Errorf("rows from %d on (%d bytes) must be whole rows of %d bytes below %d", row, len(dst), r.rowBytes, r.rows))
	}
	from := row * int64(r.rowBytes)
	at := r.begin + from
	if n, err := r.file.ReadAt(dst, at); n < len(dst) {
		if info, statErr := r.file.Stat(); err == io.EOF && statErr == nil {
			if short := r.head.checkData(min(max(0, info.Size()-r.begin), r.dataBytes()), r.dataBytes()); short != nil {
				err = short
			}
		}
		return inFile(r.name, readError(fmt.Sprintf("reading at byte %d", at+int64(n)), err))
	}
	to := from + int64(len(dst))
	if r.member != nil {
		if err := r.checkSum(from, to, dst); err != nil {
			return inFile(r.name, err)
		}
	} else if to == r.dataBytes() {
		if err := r.checkFileEnd(); err != nil {
			return inFile(r.name, err)
		}
	}
	if r.head.big {
		swapBytes(dst, r.head.dtype.Size())
	}
	return nil
}

// checkFileEnd checks that the file ends with the data.
func (r *Ranged) checkFileEnd() error {
	var more [1]byte
	end := r.begin + r.dataBytes()
	switch n, err := r.file.ReadAt(more[:], end); {
	case n > 0:
		return r.head.checkData(r.dataBytes()+1, r.dataBytes())
	case !errors.Is(err, io.EOF):
		return readError(fmt.Sprintf("reading at byte %d", end), err)
	}
	return nil
}

// checkSum notes bytes [from, to) of a member's data. Once all have been noted, it checks the member's CRC, which is that of header and data.
func (r *Ranged) checkSum(from, to int64, data []byte) error {
	sum, whole := r.sums.add(from, to, crc32.ChecksumIEEE(data), r.dataBytes())
	if !whole {
		return nil
	}
	header := make([]byte, r.head.bytes)
	at := r.begin - r.head.bytes
	if n, err := r.file.ReadAt(header, at); n < len(header) {
		return readError(fmt.Sprintf("reading at byte %d", at+int64(n)), err)
	}
	if combine(crc32.ChecksumIEEE(header), sum, r.dataBytes()) != r.member.CRC32 {
		return readError(fmt.Sprintf("reading all %d data bytes", r.dataBytes()), zip.ErrChecksum)
	}
	return nil
}
