package safetensors

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file builds a file from a header's text and its data.
func file(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// sequence returns n bytes that differ from their neighbours.
func sequence(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openBytes opens a file that is in memory only. Its rows cannot be read.
func openBytes(b []byte, name string, minRank int) (*Reader, error) {
	r, err := open("mem", bytes.NewReader(b), int64(len(b)), name, minRank, nil)
	return r, inFile("mem", err)
}

// readRows reads the rest of r, at most rows rows a call.
func readRows(r *Reader, rows int) ([]byte, error) {
	var all []byte
	buf := make([]byte, rows*r.RowBytes())
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, buf[:n*r.RowBytes()]...)
	}
}

func checkText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want text %q", err, want)
	}
}
