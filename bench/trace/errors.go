package trace

import (
	"errors"
	"fmt"
)

// Errors that Error wraps.
var (
	// ErrTruncated: the input ends within a record, a block or a compressed frame, or without its end mark.
	ErrTruncated = errors.New("truncated")
	// ErrCorrupt: the input is not what its format says.
	ErrCorrupt = errors.New("corrupt")
	// ErrFormat: the format is not known, or cannot hold what is asked of it.
	ErrFormat = errors.New("unsuitable format")
)

// Error is a fault of a trace.
type Error struct {
	File string
	// Offset is where the faulty line, record or block begins in the decompressed data.
	Offset int64
	// Line is its number, 0 in binary formats.
	Line int64
	Err  error
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("trace: %s:%d: offset %d: %v", e.File, e.Line, e.Offset, e.Err)
	}
	return fmt.Sprintf("trace: %s: offset %d: %v", e.File, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// corrupt returns an error that is ErrCorrupt and reads as given.
func corrupt(format string, args ...any) error {
	return &fault{fmt.Sprintf(format, args...), ErrCorrupt}
}

func truncated(format string, args ...any) error {
	return &fault{fmt.Sprintf(format, args...) + ": truncated", ErrTruncated}
}

// fault is a text of a kind.
type fault struct {
	text string
	kind error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.kind }
