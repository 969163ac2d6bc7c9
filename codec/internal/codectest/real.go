// Package codectest is for tests of codecs: what every codec must do, golden rows, and real tables, which are not part of the repository.
package codectest

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/internal/npy"
)

// find returns the path of a real input: in $TENSORCACHE_DATA, or else in shared/data beside the repository. Tests of packages
// in codec/ run three folders below that.
func find(name ...string) string {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	return filepath.Join(append([]string{dir}, name...)...)
}

// File returns a file that a codec's original encoder wrote, or skips the test if it does not exist.
func File(t testing.TB, name ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(find(name...))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("golden streams are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Table returns the rows of a table, back to back, or skips the test if it does not exist.
func Table(t testing.TB, file string) (table []byte, rowBytes int) {
	t.Helper()
	r, err := npy.Open(find(file), 2, "features")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("real tables are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	table = make([]byte, r.Rows()*r.RowBytes())
	for rest := table; len(rest) > 0; {
		n, err := r.Read(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n*r.RowBytes():]
	}
	return table, r.RowBytes()
}

// BFloat16 rounds float32 elements, none of them NaN, to the nearest bfloat16, ties to even.
func BFloat16(table []byte) []byte {
	half := make([]byte, 0, len(table)/2)
	for ; len(table) > 0; table = table[4:] {
		u := binary.LittleEndian.Uint32(table)
		half = binary.LittleEndian.AppendUint16(half, uint16((u+0x7fff+u>>16&1)>>16))
	}
	return half
}
