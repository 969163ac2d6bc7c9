// Package datafile has what readers of files of arrays share: opening and mapping a file, the names of its arrays, and errors. All functions
// are safe for concurrent use.
package datafile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Open opens a regular file for reading and returns its bytes. Errors do not name the file.
func Open(path string) (*os.File, int64, error) {
	// Before opening, because opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err == nil {
		if info.IsDir() {
			return nil, 0, errors.New("path (a directory) must be a file")
		}
		if info.Mode()&os.ModeNamedPipe != 0 {
			return nil, 0, errors.New("file (a pipe) must be a regular file, of which any part can be read: save it first")
		}
		if !info.Mode().IsRegular() {
			return nil, 0, fmt.Errorf("file (mode %v) must be a regular file", info.Mode())
		}
	}
	f, err := os.Open(path)
	if err == nil {
		if info, err = f.Stat(); err == nil {
			return f, info.Size(), nil
		}
		f.Close()
	}
	return nil, 0, ReadError("open", err)
}

// Stamp returns a line that tells a file from others of its name: by length and time of the last change.
func Stamp(name string, info fs.FileInfo) string {
	return fmt.Sprintf("%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
}

// Split splits a path such as "f.npz:features" into file and array. end matches the end of a file's name and the colon. A file whose name has
// the colon wins; the array is then empty, as it is if end does not match.
func Split(path string, end *regexp.Regexp) (file, array string) {
	if _, err := os.Stat(path); err == nil {
		return path, ""
	}
	if at := end.FindStringIndex(path); at != nil {
		return path[:at[1]-1], path[at[1]:]
	}
	return path, ""
}

// NameError is the error of a path that names no array of its file, or none where the file has several.
type NameError struct{ Reason string }

func (e *NameError) Error() string { return e.Reason }

// Misnamed returns a NameError.
func Misnamed(format string, values ...any) error { return &NameError{fmt.Sprintf(format, values...)} }

// Error is an error with the package that found it and the name of the file, or of an array of the file.
type Error struct {
	Package, Name string
	Err           error
}

func (e *Error) Error() string { return e.Package + ": " + printable(e.Name) + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Named adds package and name to an error that has none yet.
func Named(pkg, name string, err error) error {
	if _, ok := err.(*Error); ok || err == nil {
		return err
	}
	return &Error{pkg, name, err}
}

// ReadError describes a failed read. Of an error of the file system only the cause is kept: the path is in the text already.
func ReadError(what string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Clip bounds what an error quotes from a file.
func Clip(s string) string {
	const limit = 64
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}

// printable quotes names that would garble a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// List quotes names for an error, at most 16 of them.
func List(names []string) string {
	const limit = 16
	var quoted []string
	for i, name := range names {
		if i == limit {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-limit))
			break
		}
		quoted = append(quoted, fmt.Sprintf("%q", Clip(name)))
	}
	return strings.Join(quoted, ", ")
}

// NaturalOrder compares names in natural order: runs of digits count as numbers, so that "shard_2" comes before "shard_10".
func NaturalOrder(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if order := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); order != 0 {
			return order
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns how many digits a text begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
