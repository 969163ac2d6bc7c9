package experiment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Cell is one measurement of a sweep. Its JSON form is a line of DIR/cells.jsonl.
type Cell struct {
	// Config is what `cachebench run --config` takes to measure the cell again.
	Config map[string]any `json:"config"`
	Seed   uint64         `json:"seed"`
	// Seconds is what measuring took.
	Seconds float64 `json:"seconds"`
	Result  *Result `json:"result"`
}

// Point is a cell's place in the grid.
type Point struct {
	Policy, Budget, Codec, HostTier string
	Seed                            uint64
}

func (p Point) String() string {
	return fmt.Sprintf("%s, %s, %s, %s, seed %d", p.Policy, p.Budget, p.Codec, p.HostTier, p.Seed)
}

// Point returns where the cell lies.
func (c *Cell) Point() Point {
	text := func(key string) string { s, _ := c.Config[key].(string); return s }
	return Point{text("policy"), text("budget"), text("codec"), text("host_tier"), c.Seed}
}

// Files of a sweep's directory.
const (
	cellsFile = "cells.jsonl"
	sweepFile = "sweep.json"
)

// ReadCells reads a file of cells. torn is the number of bytes at its end that are part of a line only.
func ReadCells(path string) (cells []Cell, torn int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("sweep: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	at := int64(0)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, 0, fmt.Errorf("sweep: %w", err)
		}
		if err == io.EOF { // a whole line has its end
			return cells, int64(len(line)), nil
		}
		var c Cell
		if err := json.Unmarshal(line, &c); err != nil || c.Result == nil {
			if _, more := r.Peek(1); more == io.EOF {
				return cells, int64(len(line)), nil
			}
			return nil, 0, fmt.Errorf("sweep: %s:%d: byte %d: must be a cell: %w", path, n, at, orMissing(err, "result"))
		}
		at += int64(len(line))
		cells = append(cells, c)
	}
}

func orMissing(err error, key string) error {
	if err == nil {
		err = fmt.Errorf("key %q is missing", key)
	}
	return err
}

// openCells opens the file of cells for appending, repairs what an interrupt or a full disk left of a last line, and returns
// the cells that are finished.
func openCells(dir string, notice func(string)) (f *os.File, cells []Cell, err error) {
	path := filepath.Join(dir, cellsFile)
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, nil, fmt.Errorf("sweep: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := lock(f); err != nil {
		return nil, nil, fmt.Errorf("sweep: %s is in use by another sweep: %w", dir, err)
	}
	cells, torn, err := ReadCells(path)
	if err != nil {
		return nil, nil, err
	}
	if torn > 0 {
		size, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			err = f.Truncate(size - torn)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("sweep: %w", err)
		}
		notice(fmt.Sprintf("%s: %d bytes of an unfinished last line are removed; its cell is measured again", path, torn))
	}
	return f, cells, nil
}

// appendCell adds a finished cell. When it returns nil, the cell survives a crash.
func appendCell(f *os.File, c *Cell) error {
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("sweep: cell %v: %w", c.Point(), err)
	}
	return appendTo(f, append(line, '\n'))
}

// appendTo appends to a file all of b, on disk, or nothing. Errors name the file.
func appendTo(f *os.File, b []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		if err = write(f, b); err == nil {
			err = f.Sync()
		}
		if err != nil {
			f.Truncate(size) // else the next sweep does
		}
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

var write = func(f *os.File, b []byte) error { // tests have one that fails
	_, err := f.Write(b)
	return err
}

// writeFile replaces a file as a whole.
func writeFile(path string, b []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sweep: %w", err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Median returns the middle of the values, or the mean of the two middle ones; 0 of none. It sorts them.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}
