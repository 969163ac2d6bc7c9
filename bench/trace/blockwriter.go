package trace

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// BlockWriter writes a tct trace into a stream. What it has written is readable up to the last full block, or Flush.
type BlockWriter struct {
	w        io.Writer
	requests []Request
	index    int64 // of the first one of requests
	lost     int64
	column   []uint64
	buf      []byte
	err      error
	closed   bool
}

// NewBlockWriter writes the header. The caller closes w after Close.
func NewBlockWriter(w io.Writer, h Header) (*BlockWriter, error) {
	if err := h.validate(); err != nil {
		return nil, fmt.Errorf("trace: header: %w", err)
	}
	b := &BlockWriter{w: w, requests: make([]Request, 0, blockRequests), column: make([]uint64, blockRequests)}
	if _, err := w.Write(h.append(nil)); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return b, nil
}

// Write appends requests.
func (b *BlockWriter) Write(requests []Request) error { return prefixed(b.write(requests)) }

// Flush writes what there is as a block.
func (b *BlockWriter) Flush() error { return prefixed(b.flush()) }

// Close writes what there is, and the end mark.
func (b *BlockWriter) Close() error { return prefixed(b.finish()) }

// prefixed names the package; the encoder names the file besides.
func prefixed(err error) error {
	if err != nil {
		err = fmt.Errorf("trace: %w", err)
	}
	return err
}

func (b *BlockWriter) write(requests []Request) error {
	for len(requests) > 0 && b.err == nil {
		n := min(len(requests), blockRequests-len(b.requests))
		for i := range requests[:n] {
			if err := check(&requests[i], b.index+int64(len(b.requests)+i)); err != nil {
				b.err = err
				return err
			}
		}
		b.requests = append(b.requests, requests[:n]...)
		requests = requests[n:]
		if len(b.requests) == blockRequests {
			b.flush()
		}
	}
	return b.err
}

// check says what of a request the format cannot hold.
func check(r *Request, index int64) error {
	switch {
	case r.Op >= numOps || r.Outcome >= numOutcomes:
		return fmt.Errorf("request %d: %w: operation (%d) and outcome (%d) must be known", index, ErrFormat, r.Op, r.Outcome)
	case r.Size < 0:
		return fmt.Errorf("request %d: %w: size (%d) must not be negative", index, ErrFormat, r.Size)
	case r.Next < Unknown || r.Next >= 0 && r.Next <= index:
		return fmt.Errorf("request %d: %w: next access (%d) must come after it", index, ErrFormat, r.Next)
	}
	return nil
}

// Lose notes that so many accesses are missing before what is written next.
func (b *BlockWriter) Lose(accesses int64) {
	if accesses > 0 {
		b.flush() // losses stand before their block
		b.lost += accesses
	}
}

func (b *BlockWriter) flush() error {
	n := len(b.requests)
	if n == 0 || b.err != nil {
		return b.err
	}
	b.buf = append(b.buf[:0], blockMark...)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(n))
	b.buf = binary.LittleEndian.AppendUint32(b.buf, 0)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, b.takeLost())
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(b.index))
	for c := range blockColumns {
		column := b.column[:n]
		for i := range b.requests {
			column[i] = cell(&b.requests[i], c, b.index+int64(i))
		}
		b.buf = appendColumn(b.buf, column)
	}
	binary.LittleEndian.PutUint32(b.buf[8:], uint32(len(b.buf)-blockHead))
	b.index += int64(n)
	b.requests = b.requests[:0]
	return b.emit()
}

// takeLost returns the losses to note in a block.
func (b *BlockWriter) takeLost() uint32 {
	n := uint32(min(b.lost, math.MaxUint32))
	b.lost -= int64(n)
	return n
}

// emit writes buf and its checksum.
func (b *BlockWriter) emit() error {
	b.buf = binary.LittleEndian.AppendUint32(b.buf, crc32.Checksum(b.buf, castagnoli))
	if b.err == nil {
		_, b.err = b.w.Write(b.buf)
	}
	return b.err
}

func (b *BlockWriter) finish() error {
	if b.closed || b.flush() != nil {
		return b.err
	}
	b.closed = true
	b.buf = append(b.buf[:0], endMark...)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, b.takeLost())
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(b.index))
	return b.emit()
}

// blockEncoder writes tct files.
type blockEncoder struct{ b *BlockWriter }

func newBlockEncoder(w *Writer) (encoder, error) {
	b, err := NewBlockWriter(w.w, Header{})
	return &blockEncoder{b}, err
}

func (e *blockEncoder) encode(requests []Request) error { return e.b.write(requests) }
func (e *blockEncoder) end() error                      { return e.b.finish() }
