package dataset

import (
	"os"

	"github.com/tensorcache/tensorcache/internal/tablefile"
)

// ranged is a file whose rows can be read in any order.
type ranged interface {
	ReadFrom(row int64, dst []byte) error
}

// Outline returns the form of a file's table without its rows, and some of these: n at even distances, or in order if there are no more. It returns nil without an error
// for a directory of pages, for a file whose rows cannot be read in any order, and where whole says that so many rows of so many bytes are
// better loaded.
func Outline(path string, n int, whole func(rows, rowBytes int) bool) (form, some *Table, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() && !tablefile.IsCheckpoint(path) {
		return nil, nil, nil
	}
	f, err := tablefile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, ok := f.(ranged)
	if !ok || whole(f.Rows(), f.RowBytes()) {
		return nil, nil, nil
	}
	form = &Table{Name: f.Name(), DType: f.DType(), Rows: f.Rows(), RowBytes: f.RowBytes()}
	part := *form
	some = &part
	some.Rows = min(n, form.Rows)
	some.Data = make([]byte, some.Rows*some.RowBytes)
	for i := range some.Rows {
		row := int64(float64(i) * float64(form.Rows) / float64(some.Rows))
		if err := r.ReadFrom(row, some.Data[i*some.RowBytes:][:some.RowBytes]); err != nil {
			return nil, nil, err
		}
	}
	return form, some, nil
}
