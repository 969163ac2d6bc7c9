package tablefile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

// sequence is several files as one table: the rows of each follow those of the one before.
type sequence struct {
	files  []File
	starts []int64 // row at which each begins, then the number of all
	at     int     // file that Read reads
}

// rangedSequence is a sequence of files whose rows can be read in any order.
type rangedSequence struct{ *sequence }

// fileEnd is where the name of a file ends and that of an array begins.
var fileEnd = regexp.MustCompile(`(?i)\.(npy|npz|safetensors)(:|$)`)

// several returns the paths that a text stands for: one a line, or what a pattern matches, in natural order. A star in
// the name of a file stands for any text but a separator. It returns nil for one path.
func several(path string) ([]string, error) {
	if lines := strings.Split(path, "\n"); len(lines) > 1 {
		return lines, nil
	}
	file := fileOf(path)
	if _, err := os.Lstat(file); err == nil || !strings.Contains(file, "*") { // or it is called so
		return nil, nil
	}
	found, err := filepath.Glob(strings.NewReplacer(`\`, `\\`, "[", `\[`, "?", `\?`).Replace(file))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no file matches: %w", syscall.ENOENT)
	}
	if err != nil {
		return nil, datafile.Named("tablefile", file, err)
	}
	slices.SortFunc(found, datafile.NaturalOrder)
	for i := range found {
		found[i] += strings.TrimPrefix(path, file)
	}
	return found, nil
}

// fileOf returns the file of a path that may name an array, "" if it does not end like one that has arrays.
func fileOf(path string) string {
	at := fileEnd.FindStringIndex(path)
	if at == nil {
		return ""
	}
	return strings.TrimSuffix(path[:at[1]], ":")
}

// openSequence opens files of one element type whose rows have the same axes.
func openSequence(paths []string, rank int) (_ File, err error) {
	s := &sequence{starts: []int64{0}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	inAnyOrder := true
	for i, path := range paths {
		f, err := openOne(path, rank)
		if err != nil {
			return nil, err
		}
		s.files, s.starts = append(s.files, f), append(s.starts, s.starts[i]+int64(f.Rows()))
		if first := s.files[0]; f.DType() != first.DType() || f.RowBytes() != first.RowBytes() || !slices.Equal(axes(f)[1:], axes(first)[1:]) {
			return nil, datafile.Named("tablefile", f.Name(), fmt.Errorf("rows %v of %v must be like those of %s, %v of %v", axes(f)[1:], f.DType(), first.Name(), axes(first)[1:], first.DType()))
		}
		_, ok := f.(ranged)
		inAnyOrder = inAnyOrder && ok
	}
	if inAnyOrder {
		return rangedSequence{s}, nil
	}
	return s, nil
}

// axes returns the axes of a file's array: of rows of parts, and of joined tensors, the rows and the elements of a row.
func axes(f File) []int {
	if shaped, ok := f.(interface{ Shape() []int }); ok && !f.DType().IsRow() {
		return shaped.Shape()
	}
	return []int{f.Rows(), f.RowBytes() / f.DType().Size()}
}

// Shape returns the axes of all files together.
func (s *sequence) Shape() []int {
	all := axes(s.files[0])
	for _, f := range s.files[1:] {
		all[0] += axes(f)[0]
	}
	return all
}

// Name returns that of the first file.
func (s *sequence) Name() string         { return s.files[0].Name() }
func (s *sequence) DType() dtype.Type    { return s.files[0].DType() }
func (s *sequence) Rows() int            { return int(s.starts[len(s.files)]) }
func (s *sequence) RowBytes() int        { return s.files[0].RowBytes() }
func (s *sequence) Maps() bool           { return false }
func (s *sequence) Map() ([]byte, error) { return nil, nil }

func (s *sequence) Read(dst []byte) (rows int, err error) {
	for ; s.at < len(s.files); s.at++ {
		if rows, err = s.files[s.at].Read(dst); rows > 0 || err != io.EOF {
			return rows, err
		}
	}
	return 0, io.EOF
}

func (s rangedSequence) ReadFrom(row int64, dst []byte) error {
	rowBytes := int64(s.RowBytes())
	i, exact := slices.BinarySearch(s.starts, row)
	if !exact {
		i--
	}
	for ; len(dst) > 0; i++ {
		if i >= len(s.files) {
			return fmt.Errorf("tablefile: %s: rows from %d on (%d bytes) must be below %d", s.Name(), row, len(dst), s.Rows())
		}
		n := min(int64(len(dst)), (s.starts[i+1]-row)*rowBytes)
		if err := s.files[i].(ranged).ReadFrom(row-s.starts[i], dst[:n]); err != nil {
			return err
		}
		dst, row = dst[n:], row+n/rowBytes
	}
	return nil
}

// Stamp returns what tells the files that a table is read from from others of the same names: length and time of the last change of each.
func Stamp(f File) (string, error) {
	if several, ok := f.(interface{ Stamp() (string, error) }); ok {
		return several.Stamp()
	}
	return (&sequence{files: []File{f}}).Stamp()
}

// Stamp returns what tells the files from others of the same names: length and time of the last change of each.
func (s *sequence) Stamp() (string, error) {
	var b strings.Builder
	for _, f := range s.files {
		file := cmp.Or(fileOf(f.Name()), f.Name())
		info, err := os.Stat(file)
		if err != nil {
			return "", datafile.Named("tablefile", file, datafile.ReadError("stat", err))
		}
		b.WriteString(datafile.Stamp(filepath.Base(f.Name()), info))
	}
	return b.String(), nil
}

func (s *sequence) Close() (err error) {
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
