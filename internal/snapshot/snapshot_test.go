package snapshot

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// FuzzSnapshot decodes arbitrary bytes, with checksums made right: whatever they are, an error or keys come back.
func FuzzSnapshot(f *testing.F) {
	tables := []Table{{Name: "x", DType: dtype.Uint8, RowBytes: 16}}
	seal := func(b []byte, from, to int) {
		if to+4 <= len(b) {
			binary.LittleEndian.PutUint32(b[to:], crc32.Checksum(b[from:to], castagnoli))
		}
	}
	good := append([]byte(magic), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	good = append(good, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, byte(dtype.Uint8), 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'x')
	good = append(good, make([]byte, 2*8+4)...)
	f.Add(good, uint16(49))
	f.Add(good[:40], uint16(20))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		seal(b, 0, headerBytes)
		seal(b, headerBytes+4, headerBytes+4+int(size))
		keys, err := Decode(b, tables)
		if err == nil && len(b) != headerBytes+4+tableBytes+1+8*len(keys)+4 {
			t.Errorf("%d keys of %d bytes", len(keys), len(b))
		}
	})
}
