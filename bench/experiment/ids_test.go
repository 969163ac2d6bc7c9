package experiment

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

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
