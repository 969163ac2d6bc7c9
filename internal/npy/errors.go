package npy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// fileError is an error with the name of the file, or of the array of an archive.
type fileError struct {
	name string
	err  error
}

func (e *fileError) Error() string { return "npy: " + printable(e.name) + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// inFile adds the name to an error that has none yet.
func inFile(name string, err error) error {
	if _, ok := err.(*fileError); ok || err == nil {
		return err
	}
	return &fileError{name, err}
}

// readError describes a failed read. Of an error of the file system only the cause is kept: the path is in the text already.
func readError(what string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", what, err)
}

// clip bounds what an error quotes from a file.
func clip(s string) string {
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
