package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// file builds an .npy of the given version from a header's text and its data.
func file(version byte, text string, data []byte) []byte {
	b := append([]byte(magic), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	}
	return append(append(b, text...), data...)
}

func dict(descr, fortran, shape string) string {
	return fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, fortran, shape)
}

// member is one entry of a test archive.
type member struct {
	name   string
	method uint16
	data   []byte
}

func archiveOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, m := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: m.name, Method: m.method})
		if err == nil {
			_, err = f.Write(m.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// written returns what Write makes of an array.
func written(t testing.TB, d dtype.Type, shape []int, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, d, shape, data); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// sequence returns n bytes that differ from their neighbours.
func sequence(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

func save(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openBytes opens a file that is in memory only.
func openBytes(b []byte, c choice) (*Reader, error) {
	c.minRank = max(c.minRank, 1)
	r, err := open("mem", bytes.NewReader(b), int64(len(b)), c)
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
		if n == 0 {
			return all, fmt.Errorf("Read(%d bytes) = 0 rows and no error", len(buf))
		}
		all = append(all, buf[:n*r.RowBytes()]...)
	}
}

// openAll opens and reads a file in memory.
func openAll(b []byte, c choice) ([]byte, error) {
	r, err := openBytes(b, c)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readRows(r, 1)
}

func checkText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want text %q", err, want)
	}
}
