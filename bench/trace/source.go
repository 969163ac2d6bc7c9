package trace

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/tensorcache/tensorcache/internal/packed"
)

// maxLine and maxJSONLine bound the length of a line, in bytes.
const (
	maxLine     = 64 << 10
	maxJSONLine = 16 << 20
)

// source is a trace's decompressed bytes.
type source struct {
	name   string
	r      *bufio.Reader
	offset int64 // of the next byte
	line   int64 // lines read
	long   []byte
	free   func() // of the decompressor
	file   io.Closer
}

// newSource reads from r, which is closed with the source if it is a file.
func newSource(name string, r io.Reader) (*source, error) {
	s := &source{name: name}
	s.file, _ = r.(io.Closer)
	var err error
	if s.r, s.free, err = packed.NewReader(r); err != nil {
		return nil, s.fault(0, 0, err)
	}
	return s, nil
}

// fault returns err as an Error.
func (s *source) fault(offset, line int64, err error) error {
	if p, ok := errors.AsType[*packed.Error](err); ok {
		if p.Err == io.EOF || errors.Is(p.Err, io.ErrUnexpectedEOF) {
			err = truncated("%s data must end with their last frame", p.Method)
		} else {
			err = corrupt("%v", p)
		}
	}
	return &Error{File: s.name, Offset: offset, Line: line, Err: err}
}

// read fills p. At the end of the data it returns io.EOF and what is left.
func (s *source) read(p []byte) (int, error) {
	n, err := io.ReadFull(s.r, p)
	s.offset += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// readLine returns the next line without its end, and its offset. The last line may lack an end; after it comes io.EOF.
func (s *source) readLine(limit int) (line []byte, offset int64, err error) {
	offset = s.offset
	err = bufio.ErrBufferFull
	for s.long = s.long[:0]; err == bufio.ErrBufferFull && len(s.long) <= limit; {
		line, err = s.r.ReadSlice('\n')
		s.long = append(s.long, line...)
	}
	line = s.long
	s.offset += int64(len(line))
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if err != nil && err != bufio.ErrBufferFull {
		return nil, offset, err
	}
	s.line++
	if len(line) > limit {
		return nil, offset, corrupt("line must be at most %d bytes long", limit)
	}
	return bytes.TrimRight(line, "\r\n"), offset, nil
}

func (s *source) close() error {
	s.free()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
