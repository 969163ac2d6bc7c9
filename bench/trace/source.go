package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// bufferBytes is what is read at a time, and how far Open looks ahead to tell the format.
	bufferBytes = 256 << 10
	maxLine     = 64 << 10
	maxJSONLine = 16 << 20
	// maxWindow is the most a zstd frame may ask for, as for the command zstd.
	maxWindow = 128 << 20
)

// source is a trace's decompressed bytes.
type source struct {
	name   string
	r      *bufio.Reader
	offset int64 // of the next byte
	line   int64 // lines read
	long   []byte
	close  []func() error
}

// openSource opens a file and undoes gzip or zstd.
func openSource(path string) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	s, err := newSource(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	s.close = append(s.close, f.Close)
	return s, nil
}

// newSource reads from r.
func newSource(name string, r io.Reader) (*source, error) {
	s := &source{name: name}
	file := &counter{r: r}
	raw := bufio.NewReaderSize(file, bufferBytes)
	head, err := raw.Peek(4)
	if err != nil && err != io.EOF {
		return nil, s.fault(0, 0, err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, s.fault(0, 0, decompression("gzip", 0, err))
		}
		s.close = append(s.close, func() error { z.Close(); return nil }) // its error is the last Read's
		s.r = bufio.NewReaderSize(&decompressor{"gzip", z, file}, bufferBytes)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One goroutine: readers are used beside others that simulate.
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, s.fault(0, 0, decompression("zstd", 0, err))
		}
		s.close = append(s.close, func() error { z.Close(); return nil })
		s.r = bufio.NewReaderSize(&decompressor{"zstd", z, file}, bufferBytes)
	default:
		s.r = raw
	}
	return s, nil
}

// counter counts the bytes read of a file.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// decompressor names what was wrong with the compressed data.
type decompressor struct {
	method string
	r      io.Reader
	file   *counter
}

func (d *decompressor) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil && err != io.EOF {
		err = decompression(d.method, d.file.n, err)
	}
	return n, err
}

func decompression(method string, read int64, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return truncated("%s data (%d bytes) must end with its last frame", method, read)
	}
	return corrupt("%s data, in the file's first %d bytes: %v", method, read, err)
}

// fault returns err as an Error.
func (s *source) fault(offset, line int64, err error) error {
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
	line, err = s.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		s.long = append(s.long[:0], line...)
		for err == bufio.ErrBufferFull && len(s.long) <= limit {
			line, err = s.r.ReadSlice('\n')
			s.long = append(s.long, line...)
		}
		line = s.long
	}
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

func (s *source) closeAll() error {
	var errs []error
	for _, c := range s.close {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
