package change

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// FuzzSnapshot decodes arbitrary bytes, with checksums made right: whatever they are, an error or keys come back.
func FuzzSnapshot(f *testing.F) {
	tier, err := transfer.Load(host.Open(1, 1)[0], transfer.SourceOf(make([]byte, 64), 16), transfer.Options{Codec: "none"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(tier.Close)
	tables := []*read.Table{{Name: "x", DType: dtype.Uint8, Tier: tier}}
	seal := func(b []byte, from, to int) {
		if to+4 <= len(b) {
			binary.LittleEndian.PutUint32(b[to:], crc32.Checksum(b[from:to], castagnoli))
		}
	}
	good := append([]byte(snapshotMagic), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	good = append(good, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, byte(dtype.Uint8), 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'x')
	good = append(good, make([]byte, 2*8+4)...)
	f.Add(good, uint16(49))
	f.Add(good[:40], uint16(20))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		seal(b, 0, snapshotHeader)
		seal(b, snapshotHeader+4, snapshotHeader+4+int(size))
		keys, err := DecodeSnapshot(b, tables)
		if err == nil && len(b) != snapshotHeader+4+snapshotTable+1+8*len(keys)+4 {
			t.Errorf("%d keys of %d bytes", len(keys), len(b))
		}
	})
}
