package scratch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFolder_MemoryOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	f := In(dir)
	a, err := Of[uint32](f, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Of[uint64](f, 3)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Max(a) != 0 || slices.Max(b) != 0 || len(a) != 100_000 || len(b) != 3 {
		t.Error("memory must be zeros")
	}
	for i := range a {
		a[i] = uint32(i)
	}
	b[2] = 1 << 63
	if a[99_999] != 99_999 || b[0] != 0 || b[2] != 1<<63 {
		t.Error("memory does not keep what is written")
	}
	if none, err := Of[uint32](f, 0); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("the folder has %v, %v", names, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFolder_Missing(t *testing.T) {
	if !mapped {
		t.Skip("memory is not of files on this system")
	}
	if _, err := In(filepath.Join(t.TempDir(), "none")).Bytes(1); err == nil || !strings.HasPrefix(err.Error(), "scratch: ") {
		t.Errorf("error %v", err)
	}
	if _, err := In(t.TempDir()).Bytes(1 << 60); err == nil || !strings.Contains(err.Error(), "file of 1152921504606846976 bytes in ") {
		t.Errorf("error %v", err)
	}
}
