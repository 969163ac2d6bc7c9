// Package packed reads files and pipes that may be compressed with gzip or zstd. Nothing in it is safe for concurrent use.
package packed

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// BufferBytes is how much is read at a time, and how far a returned Reader can look ahead.
	BufferBytes = 256 << 10
	// maxWindow is the most memory that a zstd frame may ask for, as for the command zstd.
	maxWindow = 128 << 20
)

// Error says that compressed data are truncated or corrupt. Err is io.EOF or io.ErrUnexpectedEOF if they are truncated.
type Error struct {
	Method string // gzip or zstd
	Err    error
}

func (e *Error) Error() string { return e.Method + " data: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// NewReader returns the content of r, decompressed if its first bytes are those of gzip or zstd, and a function that frees
// the decompressor. The caller closes r.
func NewReader(r io.Reader) (*bufio.Reader, func(), error) {
	raw := bufio.NewReaderSize(r, BufferBytes)
	head, err := raw.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(raw)
		if err != nil {
			return nil, nil, &Error{"gzip", err}
		}
		z.Multistream(false)
		return bufio.NewReaderSize(&reader{"gzip", &members{z: z, raw: raw}}, BufferBytes), func() { z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One goroutine: callers read while others compute.
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, &Error{"zstd", err}
		}
		return bufio.NewReaderSize(&reader{"zstd", z}, BufferBytes), z.Close, nil
	}
	return raw, func() {}, nil
}

// members reads the members of gzip data, one after the other. Zeros behind the last one are padding, as of tapes and of storage with blocks, which the command
// gzip ignores, too.
type members struct {
	z   *gzip.Reader
	raw *bufio.Reader
	err error // of next
}

func (m *members) Read(p []byte) (int, error) {
	for m.err == nil {
		n, err := m.z.Read(p)
		if err != io.EOF {
			return n, err
		}
		m.err = m.next()
		if n > 0 {
			return n, nil
		}
	}
	return 0, m.err
}

// next begins the next member. It returns io.EOF if there is none.
func (m *members) next() error {
	padded := false
	for {
		b, err := m.raw.ReadByte()
		switch {
		case err != nil:
			return err
		case b == 0:
			padded = true
		case padded:
			return gzip.ErrHeader
		default:
			if err := m.raw.UnreadByte(); err != nil {
				return err
			}
			if err := m.z.Reset(m.raw); err == io.EOF {
				return io.ErrUnexpectedEOF // in a header
			} else if err != nil {
				return err
			}
			m.z.Multistream(false)
			return nil
		}
	}
}

// reader makes errors of a decompressor an Error.
type reader struct {
	method string
	r      io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		err = &Error{r.method, err}
	}
	return n, err
}
