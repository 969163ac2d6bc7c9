package experiment

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadIDs_NPY: integers of every length and sign are row numbers, in parts as well, and those of another table are refused with their place.
func TestReadIDs_NPY(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.npy")
	const n = 200_000 // several parts
	for descr, size := range map[string]int{"<i4": 4, "<i8": 8, "<u4": 4, "<u8": 8, "<u2": 2, "|i1": 1} {
		data := make([]byte, n*size)
		want := make([]int64, n)
		for i := range want {
			want[i] = int64(i * 7 % 100)
			data[i*size] = byte(want[i])
		}
		save := func() {
			t.Helper()
			header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, n)
			b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
			if err := os.WriteFile(path, append(append(b, header...), data...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		save()
		if ids, err := readIDs(path, 100, false); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: %d row numbers, %v", descr, len(ids), err)
		}
		var parts []int64
		err := visitIDs(path, 100, func(part []int64) error {
			parts = append(parts, part...)
			return nil
		})
		if err != nil || !slices.Equal(parts, want) {
			t.Errorf("%s in parts: %d row numbers, %v", descr, len(parts), err)
		}
		data[(n-1)*size] = 100
		save()
		if _, err := readIDs(path, 100, false); err == nil || err.Error() != "row numbers ("+path+"): row number (100) at index 199999 must be 0 to 99: the table has 100 rows" {
			t.Errorf("%s: error %v", descr, err)
		}
	}
}

// TestReadIDs_Forms: row numbers are read from text, plain and compressed, with the comments of LIRS traces.
func TestReadIDs_Forms(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"rows.txt": "3\n# x\n0\n3\n", "rows.gz": "3\n0\n3\n", "x.lirs": "*\n3\n0\n*\n3\n", "x.lirs.gz": "*\n3\n0\n3\n", "x.arc": "3 1 0 0\n0 1 0 1\n3 1 0 2\n"} {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(path) == ".gz" {
			z := gzip.NewWriter(f)
			z.Write([]byte(text))
			z.Close()
		} else {
			f.WriteString(text)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if ids, err := readIDs(path, 4, false); err != nil || !slices.Equal(ids, []int64{3, 0, 3}) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
		if ids, err := readIDs(path, 3, false); err == nil {
			t.Errorf("%s: %v for a table of 3 rows", name, ids)
		}
	}
}
