package npy

import (
	"archive/zip"
	"hash/crc32"
	"os"

	"github.com/tensorcache/tensorcache/internal/datafile"
)

// Maps reports whether Map returns the data.
func (r *Reader) Maps() bool {
	_, ok := r.file.(*os.File)
	return datafile.CanMap && ok && r.at != nil && !r.fortranOrder() && (!r.head.big || r.head.dtype.Size() == 1)
}

// Map returns the array's data as they lie in the file, mapped into memory, or nil where they cannot be used like that: compressed,
// in Fortran order, or big-endian. A stored member's CRC is checked by going through it once. The pages are those of datafile.Map.
func (r *Reader) Map() ([]byte, error) {
	if !r.Maps() {
		return nil, nil
	}
	array, err := datafile.Map(r.file.(*os.File), r.begin-r.head.bytes, r.head.bytes+r.dataBytes())
	if err != nil {
		return nil, inFile(r.name, err)
	}
	if r.member != nil {
		crc := crc32.ChecksumIEEE(array)
		datafile.Unload(array) // what is needed is read again
		if crc != r.member.CRC32 {
			return nil, inFile(r.name, readError("mapping", zip.ErrChecksum))
		}
	}
	return array[r.head.bytes:], nil
}
