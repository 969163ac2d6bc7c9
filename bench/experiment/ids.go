package experiment

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/internal/memlimit"
	"github.com/tensorcache/tensorcache/internal/npy"
)

// idBytes is what a row number takes of memory while a list of them grows.
const idBytes = 20

// readIDs reads the row numbers that are looked up in a table of so many rows: those of an .npy file of one axis, or the IDs of the gets of a trace, which may be a
// text file of row numbers. Unless force is set, it ends once this process may not take the memory for them.
func readIDs(path string, rows int, force bool) (ids []int64, err error) {
	err = eachID(path, rows, !force, func(part []int64) error {
		ids = append(ids, part...)
		return nil
	})
	return ids, err
}

// visitIDs is readIDs that passes the row numbers on in parts. An error of visit ends it.
func visitIDs(path string, rows int, visit func(part []int64) error) error {
	return eachID(path, rows, false, visit)
}

// eachID is visitIDs. keeps says that the row numbers are kept, so that there must be memory for them.
func eachID(path string, rows int, keeps bool, visit func(part []int64) error) error {
	if strings.EqualFold(filepath.Ext(path), ".npy") {
		return visitNPY(path, rows, keeps, visit)
	}
	r, err := trace.Open(path, trace.Options{Default: "ids"})
	if err != nil {
		return err
	}
	defer r.Close()
	if keeps {
		r = trace.Limited(r, "--ids", path, idBytes)
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
				return fmt.Errorf("row numbers (%s): row number (%d) of lookup %d must be 0 to %d: the table has %d rows", path, q.ID, gets+len(part)+1, rows-1, rows)
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

func visitNPY(path string, rows int, keeps bool, visit func(part []int64) error) error {
	r, err := npy.Open(path, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	if len(r.Shape()) != 1 || !r.DType().IsInt() {
		return fmt.Errorf("row numbers (%s, %s with shape %v) must be integers, with one axis", path, r.DType(), r.Shape())
	}
	if keeps {
		if err := memlimit.Check(memlimit.Need{Setting: "--ids", Value: path, Bytes: idBytes * float64(r.Rows())}); err != nil {
			return err
		}
	}
	at := 0
	return r.VisitInts(func(part []int64) error {
		for i, row := range part {
			if row < 0 || row >= int64(rows) {
				return fmt.Errorf("row numbers (%s): row number (%d) at index %d must be 0 to %d: the table has %d rows", path, row, at+i, rows-1, rows)
			}
		}
		at += len(part)
		return visit(part)
	})
}
