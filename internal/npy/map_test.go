//go:build linux

package npy

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestMap_EqualsRead: what is mapped is what is read, and what does not lie in the file as it is is not mapped.
func TestMap_EqualsRead(t *testing.T) {
	data := make([]byte, 3000*4*4)
	for i := range data {
		data[i] = byte(i * 7)
	}
	plain := written(t, dtype.Float32, []int{3000, 4}, data)
	other := func(descr, fortran string) []byte { return file(1, dict(descr, fortran, "(3000, 4)"), data) }
	for name, c := range map[string]struct {
		file []byte
		maps bool
	}{
		"plain.npy":   {plain, true},
		"bytes.npy":   {file(1, dict("'|u1'", "False", "(3000, 16)"), data), true},
		"big.npy":     {other("'>f4'", "False"), false},
		"fortran.npy": {other("'<f4'", "True"), false},
		"stored.npz":  {archiveOf(t, member{"pad.npy", zip.Store, written(t, dtype.Uint8, []int{5}, data[:5])}, member{"features.npy", zip.Store, plain}), true},
		"deflate.npz": {archiveOf(t, member{"features.npy", zip.Deflate, plain}), false},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, c.file, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path, 2, "features")
		if err != nil {
			t.Fatal(err)
		}
		maps := r.Maps()
		mapped, err := r.Map()
		if err != nil || (mapped != nil) != c.maps || maps != c.maps {
			t.Errorf("%s: %d bytes mapped, %v", name, len(mapped), err)
		}
		got := make([]byte, len(data))
		if n, err := r.Read(got); err != nil || n != 3000 {
			t.Fatalf("%s: %d rows, %v", name, n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if c.maps && !bytes.Equal(mapped, got) { // after Close
			t.Errorf("%s: mapped data differ", name)
		}
	}
}

func TestMap_BadCRC(t *testing.T) {
	b := archiveOf(t, member{"a.npy", zip.Store, written(t, dtype.Uint8, []int{100, 100}, make([]byte, 10000))})
	b[5000] ^= 1
	path := filepath.Join(t.TempDir(), "f.npz")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := r.Map(); data != nil || !errors.Is(err, zip.ErrChecksum) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
