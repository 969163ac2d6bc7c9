package experiment

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/internal/npy"
)

// readIDs reads the IDs of the gets of a trace, which may be a text file of row numbers, for a table of so many rows.
func readIDs(path string, rows int, force bool) ([]int64, error) {
	r, err := trace.Open(path, trace.Options{Default: "ids"})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !force {
		r = trace.Limited(r, "--ids", path, 20)
	}
	var ids []int64
	buf := make([]trace.Request, 4096)
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		for _, q := range buf[:n] {
			if q.Op != trace.Get {
				continue
			}
			if q.ID >= uint64(rows) {
				return nil, fmt.Errorf("trace %s: row number (%d) of get %d must be below %d, the rows of the table", path, q.ID, len(ids), rows)
			}
			ids = append(ids, int64(q.ID))
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("trace %s: gets (0) must be at least 1", path)
	}
	return ids, nil
}

// readRowNumbers reads row numbers of a table of so many rows: an .npy file of one axis, or what readIDs reads.
func readRowNumbers(path string, rows int64, force bool) ([]int64, error) {
	if strings.EqualFold(filepath.Ext(path), ".npy") {
		r, err := npy.Open(path, 1)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.ReadInts()
	}
	return readIDs(path, int(rows), force)
}
