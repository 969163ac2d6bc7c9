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
	var ids []int64
	limit := func(r trace.Reader) trace.Reader {
		if force {
			return r
		}
		return trace.Limited(r, "--ids", path, 20)
	}
	err := visitGets(path, rows, limit, func(part []int64) error {
		ids = append(ids, part...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// visitIDs is readIDs that passes the IDs on in parts.
func visitIDs(path string, rows int, visit func(part []int64)) error {
	return visitGets(path, rows, nil, func(part []int64) error {
		visit(part)
		return nil
	})
}

func visitGets(path string, rows int, limit func(trace.Reader) trace.Reader, visit func(part []int64) error) error {
	r, err := trace.Open(path, trace.Options{Default: "ids"})
	if err != nil {
		return err
	}
	defer r.Close()
	if limit != nil {
		r = limit(r)
	}
	gets := 0
	buf := make([]trace.Request, 4096)
	part := make([]int64, 0, len(buf))
	for {
		n, err := r.Read(buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		part = part[:0]
		for _, q := range buf[:n] {
			if q.Op != trace.Get {
				continue
			}
			if q.ID >= uint64(rows) {
				return fmt.Errorf("trace %s: row number (%d) of get %d must be below %d, the rows of the table", path, q.ID, gets+len(part), rows)
			}
			part = append(part, int64(q.ID))
		}
		gets += len(part)
		if err := visit(part); err != nil {
			return err
		}
	}
	if gets == 0 {
		return fmt.Errorf("trace %s: gets (0) must be at least 1", path)
	}
	return nil
}

// readRowNumbers reads row numbers of a table of so many rows: an .npy file of one axis, or what readIDs reads.
func readRowNumbers(path string, rows int64, force bool) ([]int64, error) {
	if isNPY(path) {
		r, err := npy.Open(path, 1)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.ReadInts()
	}
	return readIDs(path, int(rows), force)
}

// visitRowNumbers is readRowNumbers that passes the numbers on in parts. An error of visit ends it.
func visitRowNumbers(path string, rows int64, visit func(part []int64) error) error {
	if isNPY(path) {
		r, err := npy.Open(path, 1)
		if err != nil {
			return err
		}
		defer r.Close()
		return r.VisitInts(visit)
	}
	return visitGets(path, int(rows), nil, visit)
}

func isNPY(path string) bool { return strings.EqualFold(filepath.Ext(path), ".npy") }
