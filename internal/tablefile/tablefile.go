// Package tablefile opens the files that tables are read from, of any format that there is.
package tablefile

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/npy"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/pages/model"
)

// File is an array of rank 2 or more, of little-endian elements, whose last axis is the row, or an array of rows of parts. If its rows can be read in any order and by several
// goroutines at once, it has the method ReadFrom of transfer.Ranged.
type File interface {
	// Name returns the path, or path:array for an array of several.
	Name() string
	DType() dtype.Type
	Rows() int
	RowBytes() int
	// Read is that of transfer.Source.
	Read(dst []byte) (rows int, err error)
	// Maps reports whether Map returns the data. Map returns the data as they lie in the file, mapped into memory, or nil.
	Maps() bool
	Map() ([]byte, error)
	Close() error
}

// array is what a file's array is called if no name is given.
const array = "features"

// Open opens an .npy file, or an array of an .npz archive or of a .safetensors file. The array is named after a colon; without a name it is
// "features", else the only array of rank ≥ 2. Tensors with a plus between their names are joined: safetensors.OpenJoined. Of a checkpoint of several files, or by a
// pattern, the rows of several tensors follow each other: safetensors.OpenCheckpoint. So do the rows of several files: of paths one a line, or of those that a pattern
// matches ("part-*.npy").
func Open(path string) (File, error) { return open(path, 2) }

func open(path string, rank int) (File, error) {
	paths, err := several(path)
	if err != nil {
		return nil, err
	}
	if len(paths) > 0 {
		return openSequence(paths, rank)
	}
	return openOne(path, rank)
}

// openOne opens one file's array, of at least so many axes.
func openOne(path string, rank int) (File, error) {
	if dir, names, ok := model.Split(path); ok {
		c, err := model.OpenRows(dir, names, rank, array)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	if c, err := safetensors.OpenCheckpoint(path, rank); c != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	if isSafetensors(path) {
		if j, err := safetensors.OpenJoined(path); j != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return j, nil
		}
		r, err := safetensors.Open(path, rank, array)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	r, err := npy.Open(path, rank, array)
	if err != nil {
		return nil, err
	}
	if ranged := r.Ranged(); ranged != nil {
		return ranged, nil
	}
	return r, nil
}

// OpenArray is Open for an array whose first axis numbers the rows, as NumPy has it: the other axes, if there are any, are the row. It returns the axes, too: of rows
// of parts, and of tensors that are joined or follow each other, the rows and the elements of a row.
func OpenArray(path string) (File, []int, error) {
	f, err := Open(path)
	if err != nil {
		// A vector has too few axes for Open.
		vector, e := open(path, 1)
		if e != nil {
			return nil, nil, err
		}
		f = vector
	}
	shape := axes(f)
	if f.DType().IsRow() {
		shape[1] = f.RowBytes()
	}
	if len(shape) < 3 {
		return f, shape, nil
	}
	a := &byFirstAxis{File: f, rows: shape[0]}
	if from, ok := f.(ranged); ok {
		return &rangedByFirstAxis{a, from}, shape, nil
	}
	return a, shape, nil
}

// ranged is a file whose rows can be read in any order.
type ranged interface {
	ReadFrom(row int64, dst []byte) error
}

// byFirstAxis is a file of more than two axes, several of whose rows by the last axis are a row by the first.
type byFirstAxis struct {
	File
	rows int
}

func (a *byFirstAxis) Rows() int     { return a.rows }
func (a *byFirstAxis) RowBytes() int { return a.each() * a.File.RowBytes() }

// each is how many rows by the last axis are a row.
func (a *byFirstAxis) each() int { return a.File.Rows() / a.rows }

func (a *byFirstAxis) Read(dst []byte) (rows int, err error) {
	n, err := a.File.Read(dst)
	return n / a.each(), err
}

type rangedByFirstAxis struct {
	*byFirstAxis
	from ranged
}

func (a *rangedByFirstAxis) ReadFrom(row int64, dst []byte) error {
	return a.from.ReadFrom(row*int64(a.each()), dst)
}

// IsCheckpoint is that of package safetensors. A folder is pages if it is none.
func IsCheckpoint(path string) bool {
	return safetensors.IsCheckpoint(path) || model.IsPacked(path) && !model.IsTable(path)
}

// InCheckpoint says whether a path names tensors of a checkpoint's folder or index, between which there may be commas.
func InCheckpoint(path string) bool {
	if _, names, ok := model.Split(path); ok {
		return names != ""
	}
	file, names := safetensors.SplitCheckpoint(path)
	return names != "" && path != file+":"+names || names != "" && strings.EqualFold(filepath.Ext(file), ".json")
}

// isSafetensors tells the format by the file's content: the length of a header of at most 100 MB, and its brace. No .npy or .npz file
// begins like that. A file that begins like no format is taken for what its name says.
func isSafetensors(path string) bool {
	file, _ := safetensors.Split(path)
	named := strings.EqualFold(filepath.Ext(file), ".safetensors")
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return named
	}
	f, err := os.Open(file)
	if err != nil {
		return named
	}
	defer f.Close()
	var first [9]byte
	n, _ := io.ReadFull(f, first[:])
	switch begin := string(first[:n]); {
	case n == len(first) && binary.LittleEndian.Uint64(first[:]) <= 100_000_000 && first[8] == '{':
		return true
	case strings.HasPrefix(begin, "\x93NUMPY"), strings.HasPrefix(begin, "PK\x03\x04"), strings.HasPrefix(begin, "PK\x05\x06"):
		return false
	}
	return named
}
