package datafile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestMap_AnyPart: any part of a file can be mapped, and keeps its data when parts of it are unloaded, wherever they begin and end.
func TestMap_AnyPart(t *testing.T) {
	data := make([]byte, 100000)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, size, err := Open(path)
	if err != nil || size != int64(len(data)) {
		t.Fatal(size, err)
	}
	for _, at := range []int64{0, 1, 4095, 4096, 4097, 50000, 99999} {
		part, err := Map(f, at, size-at)
		if err != nil || !bytes.Equal(part, data[at:]) {
			t.Fatalf("from byte %d: %d bytes, %v, or others", at, len(part), err)
		}
	}
	mapped, err := Map(f, 0, size)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, part := range [][2]int{{0, 0}, {0, 1}, {5, 4000}, {4000, 4100}, {1000, 99999}, {0, 100000}} {
		Unload(mapped[part[0]:part[1]])
		if !bytes.Equal(mapped, data) {
			t.Errorf("%v: the data differ", part)
		}
	}
}
