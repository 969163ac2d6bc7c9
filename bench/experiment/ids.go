package experiment

import (
	"fmt"
	"io"

	"github.com/tensorcache/tensorcache/bench/trace"
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
