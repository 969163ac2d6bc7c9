package experiment

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/bench/workload"
)

// readIDs reads the row numbers of a text file or the IDs of a trace's gets, for a table of so many rows.
func readIDs(path string, rows int) ([]int64, error) {
	r, err := trace.Open(path, trace.Options{})
	if err != nil {
		return workload.ReadIDs(path, rows) // it says what is wrong with text
	}
	defer r.Close()
	if trace.Describe(r).Format == "ids" && !compressed(path) {
		return workload.ReadIDs(path, rows) // it counts the bad lines
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
				return nil, fmt.Errorf("trace %s: ID (%d) of get %d must be below %d, the rows of the table", path, q.ID, len(ids), rows)
			}
			ids = append(ids, int64(q.ID))
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("trace %s: gets (0) must be at least 1", path)
	}
	return ids, nil
}

// compressed says that a file's name is one of a compressed file.
func compressed(path string) bool {
	return slices.Contains([]string{".gz", ".zst", ".zstd"}, strings.ToLower(filepath.Ext(path)))
}
