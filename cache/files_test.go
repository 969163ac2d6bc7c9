package cache_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// writeTable writes the rows as often as said, float32 elements, to a file of the format that the path's end names: .npy, .npz or .safetensors.
// An .npz whose name begins with "deflated" is compressed.
func writeTable(t *testing.T, path string, rows []byte, times, columns int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := len(rows) * times
	write := func(w io.Writer, head []byte) {
		if _, err := w.Write(head); err != nil {
			t.Fatal(err)
		}
		for range times {
			if _, err := w.Write(rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	npyHead := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n",
		fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", data/4/columns, columns))
	switch filepath.Ext(path) {
	case ".npy":
		write(f, npyHead)
	case ".npz":
		z := zip.NewWriter(f)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
		method := zip.Store
		if strings.HasPrefix(filepath.Base(path), "deflated") {
			method = zip.Deflate
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: "features.npy", Method: method})
		if err != nil {
			t.Fatal(err)
		}
		write(w, npyHead)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	case ".safetensors":
		head := fmt.Sprintf(`{"bias":{"dtype":"BF16","shape":[3],"data_offsets":[%d,%d]},"weight":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}`,
			data, data+6, data/4/columns, columns, data)
		write(f, append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...))
		if _, err := f.Write(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("%s: no format", path)
	}
}

// TestOpen_EveryFormat: a cache of a file serves the rows of the file, whatever the format and the length of its rows.
func TestOpen_EveryFormat(t *testing.T) {
	race.SkipSequential(t)
	const rows = 100_000 // several parts, for several readers
	for _, columns := range []int{1, 33} {
		data := normalTable(rows, columns, 1)
		for _, name := range []string{"a.npy", "stored.npz", "deflated.npz", "a.safetensors"} {
			for _, codec := range []cache.Codec{"none", "ibp4"} {
				path := filepath.Join(t.TempDir(), name)
				writeTable(t, path, data, 1, columns)
				table, err := cache.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				if table.Rows() != rows || table.RowBytes() != 4*columns || table.DType() != dtype.Float32 {
					t.Errorf("%s: %d rows of %d bytes of %v", name, table.Rows(), table.RowBytes(), table.DType())
				}
				c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Codec: codec, Devices: cache.DeviceOptions{Backend: "host"}})
				ids, out := make([]int64, rows), make([]byte, len(data))
				for i := range ids {
					ids[i] = int64(i)
				}
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil || !bytes.Equal(out, data) {
					t.Errorf("%s, %s, %d columns: %v, or other rows", name, codec, columns, err)
				}
			}
		}
	}
}

// TestNew_ArchiveCRC: one changed byte anywhere in a member is an error of New, whether one reader or several read it.
func TestNew_ArchiveCRC(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 100_000, 33
	for _, name := range []string{"stored.npz", "deflated.npz"} {
		path := filepath.Join(t.TempDir(), name)
		writeTable(t, path, normalTable(rows, columns, 1), 1, columns)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{1000, len(good) / 2, len(good) - 1000} {
			b := bytes.Clone(good)
			b[at] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			table, err := cache.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Codec: "none", Devices: cache.DeviceOptions{Backend: "host"}})
			if err == nil {
				c.Close()
			}
			// A changed byte of a deflated stream may also end it.
			if err == nil || name == "stored.npz" && !errors.Is(err, zip.ErrChecksum) || !strings.Contains(err.Error(), name+":features: reading") {
				t.Errorf("%s, byte %d: %v", name, at, err)
			}
		}
	}
}
