package tablefile

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
	"time"

	"github.com/tensorcache/tensorcache/dtype"
)

func data() []byte {
	b := make([]byte, 6*4)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func npyFile() []byte {
	return fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n%s", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", data())
}

func archive(t *testing.T, method uint16) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.CreateHeader(&zip.FileHeader{Name: "x.npy", Method: method})
	if err == nil {
		_, err = f.Write(npyFile())
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tensors returns a .safetensors file whose header is padded to the given length.
func tensors(headerBytes int) []byte {
	header := `{"x":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}}`
	header += strings.Repeat(" ", headerBytes-len(header))
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data()...)
}

// TestOpen_TellsFormatsByContent: whatever the file is called.
func TestOpen_TellsFormatsByContent(t *testing.T) {
	type ranged interface{ ReadFrom(int64, []byte) error }
	for name, c := range map[string]struct {
		file     []byte
		anyOrder bool
	}{
		"a.npy": {npyFile(), true}, "b.safetensors": {npyFile(), true},
		"stored.npz": {archive(t, zip.Store), true}, "deflated.npz": {archive(t, zip.Deflate), false}, "c.safetensors": {archive(t, zip.Deflate), false},
		"d.safetensors": {tensors(100), true}, "E.SAFETENSORS": {tensors(100), true}, "d.npy": {tensors(100), true}, "d": {tensors(100), true},
		"f.npz": {tensors('P' | 'K'<<8), true}, // begins with PK
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := make([]byte, 24)
		if n, err := f.Read(got); n != 3 || err != nil || !bytes.Equal(got, data()) || f.DType() != dtype.Float32 || f.Rows() != 3 || f.RowBytes() != 8 {
			t.Errorf("%s: %d rows read of %d of %d bytes, %v, or others", name, n, f.Rows(), f.RowBytes(), err)
		}
		if n, err := f.Read(got); n != 0 || err != io.EOF {
			t.Errorf("%s: %d rows after the last, %v", name, n, err)
		}
		if _, ok := f.(ranged); ok != c.anyOrder {
			t.Errorf("%s: read in any order: %v", name, ok)
		}
		if mapped, err := f.Map(); f.Maps() && (err != nil || !bytes.Equal(mapped, data())) {
			t.Errorf("%s: mapped: %v, or others", name, err)
		}
		f.Close()
	}
}

// TestOpen_UnknownContent: the name decides whose error it is.
func TestOpen_UnknownContent(t *testing.T) {
	for name, want := range map[string]string{
		"a.npy":           `a.npy: first bytes ("Hello ")`,
		"a":               `a: first bytes ("Hello ")`,
		"a.safetensors":   "safetensors: ",
		"a.safetensors:x": "safetensors: ",
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(strings.TrimSuffix(path, ":x"), []byte("Hello world"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for _, name := range []string{"absent.safetensors", "absent.safetensors:x"} {
		if _, err := Open(filepath.Join(t.TempDir(), name)); err == nil || !strings.HasPrefix(err.Error(), "safetensors: ") || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpen_Checkpoint: a folder of .safetensors files is opened by the names of its tensors.
func TestOpen_Checkpoint(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"model.safetensors.index.json": []byte(`{"weight_map":{"x":"a.safetensors"}}`), "a.safetensors": tensors(100),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir + ":x,x")
	if err != nil || f.Rows() != 6 || f.DType() != dtype.Float32 || f.Name() != dir+":x,x" || !IsCheckpoint(dir) || IsCheckpoint(t.TempDir()) {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, ok := f.(interface{ ReadFrom(int64, []byte) error }); !ok {
		t.Error("rows must be read in any order")
	}
	f.Close()
	for path, in := range map[string]bool{dir + ":x,x": true, dir + "/model.safetensors.index.json:x": true, dir: false, dir + "/a.safetensors:x,x": false, "a.npy,b.npy": false} {
		if InCheckpoint(path) != in {
			t.Errorf("%s is in a checkpoint: %v", path, !in)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "must be named behind a colon") {
		t.Errorf("a folder without names: %v", err)
	}
}

// TestOpen_Sequence: the rows of several files follow each other, of a list or of a pattern.
func TestOpen_Sequence(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	part := func(rows int, first byte, shape string) []byte {
		b := make([]byte, rows*8)
		for i := range b {
			b[i] = first + byte(i)
		}
		return fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n%s", "{'descr': '<f4', 'fortran_order': False, 'shape': "+shape+", }", b)
	}
	whole := make([]byte, 6*8)
	for i := range whole {
		whole[i] = byte(i)
	}
	two, ten, nine := write("p-2.npy", part(3, 0, "(3, 2)")), write("p-10.npy", part(1, 40, "(1, 2)")), write("p-9.npy", part(2, 24, "(2, 2)"))
	shards := write("s-1.safetensors", tensors(100)) + ":x\n" + write("s-2.safetensors", tensors(100)) + ":x"
	for path, rows := range map[string]int{dir + "/p-*.npy": 6, two + "\n" + nine + "\n" + ten: 6, shards: 6, dir + "/s-*.safetensors:x": 6, two + "\n" + write("z.npz", archive(t, zip.Deflate)): 6} {
		f, err := Open(path)
		if err != nil || f.Rows() != rows || f.RowBytes() != 8 || f.Maps() {
			t.Fatalf("%s: %+v, %v", path, f, err)
		}
		var got []byte
		for buffer := make([]byte, 2*8); ; {
			n, err := f.Read(buffer)
			if err != nil {
				break
			}
			got = append(got, buffer[:n*8]...)
		}
		f.Close()
		if strings.Contains(path, "p-*") || strings.Contains(path, "p-10") {
			if !bytes.Equal(got, whole) {
				t.Errorf("%s: %x", path, got)
			}
			f, _ := Open(path)
			for row := range 6 {
				part := make([]byte, (6-row)*8)
				if err := f.(ranged).ReadFrom(int64(row), part); err != nil || !bytes.Equal(part, whole[row*8:]) {
					t.Errorf("from row %d: %x, %v", row, part, err)
				}
			}
			if err := f.(ranged).ReadFrom(5, make([]byte, 16)); err == nil {
				t.Error("rows beyond the last are read")
			}
			before, err := f.(interface{ Stamp() (string, error) }).Stamp()
			os.Chtimes(nine, time.Time{}, time.Unix(1, 0))
			after, _ := f.(interface{ Stamp() (string, error) }).Stamp()
			os.Chtimes(nine, time.Time{}, time.Now())
			if err != nil || before == after || strings.Count(before, "\n") != 3 {
				t.Errorf("stamps %q, %q, %v", before, after, err)
			}
			f.Close()
		} else if len(got) != rows*8 {
			t.Errorf("%s: %d bytes", path, len(got))
		}
		if _, ok := f.(ranged); ok == strings.Contains(path, "z.npz") {
			t.Errorf("%s: read in any order: %v", path, ok)
		}
	}
	// By the first axis, also of vectors.
	cubes := write("c-1.npy", part(4, 0, "(2, 2, 2)")) + "\n" + write("c-2.npy", part(2, 32, "(1, 2, 2)"))
	vectors := write("v-1.npy", part(2, 0, "(4,)")) + "\n" + write("v-2.npy", part(1, 32, "(2,)"))
	for path, want := range map[string]string{cubes: "[3 2 2]", vectors: "[6]"} {
		f, shape, err := OpenArray(path)
		if err != nil || fmt.Sprint(shape) != want {
			t.Fatalf("%s: %v, %v", path, shape, err)
		}
		f.Close()
	}
	for path, want := range map[string]string{
		two + "\n" + write("wide.npy", part(2, 0, "(1, 4)")): "wide.npy: rows [4] of float32 must be like those of " + two + ", [2] of float32",
		two + "\n" + dir + "/absent.npy":                     "no such file", dir + "/none-*.npy": "none-*.npy: no file matches: no such file",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if f, err := Open(write("star*.npy", npyFile())); err != nil || f.Rows() != 3 {
		t.Errorf("a file that is called so: %v", err)
	}
}
