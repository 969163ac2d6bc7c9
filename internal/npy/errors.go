package npy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// The kinds of error that callers may branch on with errors.Is. The errors returned
// carry their own text, "npy: <file[:array]>: fact (value) constraint". A missing
// file is fs.ErrNotExist, and failures of the operating system have no kind of ours.
var (
	// ErrFormat occurs when the bytes are no .npy file or .npz archive that this
	// package reads: corrupt, truncated, trailing bytes, encrypted, unknown version or
	// compression method, or a directory in place of a file.
	ErrFormat = errors.New("npy: malformed or unreadable file")
	// ErrDType occurs when the element type is not supported, or not an integer where
	// integers are asked for.
	ErrDType = errors.New("npy: unsupported dtype")
	// ErrShape occurs when an axis is zero or negative, the array too large for an int,
	// or the rank not the one asked for.
	ErrShape = errors.New("npy: unusable shape")
	// ErrArray occurs when an archive has no array, not the array asked for, or several
	// that would do.
	ErrArray = errors.New("npy: no such array")
	// ErrClosed occurs when a Reader is read after Close.
	ErrClosed = errors.New("npy: reader closed")
)

// fault is an error with a text of its own that still matches its kind and cause.
type fault struct {
	kind  error // sentinel, or nil
	file  string
	text  string
	cause error // or nil
}

func faultf(kind error, format string, args ...any) error {
	return &fault{kind: kind, text: fmt.Sprintf(format, args...)}
}

// Error returns "npy: <file>: <text>: <cause>", without the parts that are absent.
func (f *fault) Error() string {
	var b strings.Builder
	b.WriteString("npy: ")
	if f.file != "" {
		b.WriteString(printable(f.file))
		b.WriteString(": ")
	}
	b.WriteString(f.text)
	if f.cause != nil {
		b.WriteString(": ")
		b.WriteString(f.cause.Error())
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (f *fault) Unwrap() []error {
	var errs []error
	for _, err := range []error{f.kind, f.cause} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// inFile names the file in an error made without it.
func inFile(file string, err error) error {
	if f, ok := err.(*fault); ok && f.file == "" {
		f.file = file
	}
	return err
}

// ioFault reports what reading returned: the operating system's failures keep only
// their cause, everything else comes from decoding and is corruption.
func ioFault(text string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		// The path is in the text already.
		return &fault{text: text, cause: pathErr.Err}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &fault{kind: ErrFormat, text: text, cause: err}
}

// clipBytes bounds what an error quotes from a file.
const clipBytes = 64

func clip(s string) string {
	if len(s) > clipBytes {
		return s[:clipBytes] + "..."
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
