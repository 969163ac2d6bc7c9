package trace

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/tensorcache/tensorcache/internal/packed"
)

// oracleBytes is the length of an oracleGeneral record, little-endian, packed:
//
//	0      4              12     16             24
//	+------+--------------+------+--------------+
//	| time | ID           | size | next access  |
//	+------+--------------+------+--------------+
//
// The next access is a logical time that counts from 1, or -1, or 2^63 - 1 for none.
const oracleBytes = 24

// oracleRecord is the layout of a record: its length, where the next access is, and whether the size has 8 bytes rather than 4.
type oracleRecord struct {
	bytes, next int
	wideSize    bool
}

// oracleDecoder reads libCacheSim's oracleGeneral, and records like it.
type oracleDecoder struct {
	s      *source
	record oracleRecord
	index  int64
	buf    [512 * oracleBytes]byte
}

func newOracleDecoder(s *source) decoder {
	return &oracleDecoder{s: s, record: oracleRecord{bytes: oracleBytes, next: 16}}
}

func (d *oracleDecoder) decode(dst []Request) (int, error) {
	at, length := d.s.offset, d.record.bytes
	got, err := d.s.read(d.buf[:min(len(dst), len(d.buf)/length)*length])
	n := got / length
	for i := range n {
		b := d.buf[i*length:]
		r := Request{
			Time: int64(binary.LittleEndian.Uint32(b)), ID: binary.LittleEndian.Uint64(b[4:]), Size: int64(binary.LittleEndian.Uint32(b[12:])),
		}
		if d.record.wideSize {
			if r.Size = int64(binary.LittleEndian.Uint64(b[12:])); r.Size < 0 {
				return i, d.s.fault(at+int64(i*length), 0, corrupt("size (%d) must not be negative", r.Size))
			}
		}
		switch next := int64(binary.LittleEndian.Uint64(b[d.record.next:])); {
		case next == -1 || next == math.MaxInt64:
			r.Next = Never
		case next-1 <= d.index:
			return i, d.s.fault(at+int64(i*length), 0, corrupt("next access (%d) must be -1 or come after record %d", next, d.index+1))
		default:
			r.Next = next - 1
		}
		dst[i] = r
		d.index++
	}
	if rest := got % length; rest > 0 && err == io.EOF {
		err = truncated("record (%d bytes) must have %d", rest, length)
	}
	if err != nil && err != io.EOF {
		err = d.s.fault(at+int64(n*length), 0, err)
	}
	return n, err
}

// oracleEncoder writes records without their next accesses into a plain file first, and fills those in from the last record
// to the first: that takes memory by the number of IDs, not of requests.
type oracleEncoder struct {
	w       *Writer
	f       *os.File
	out     *bufio.Writer // to f
	records int64
}

func newOracleEncoder(w *Writer) (encoder, error) {
	f, err := w.plain()
	return &oracleEncoder{w: w, f: f, out: bufio.NewWriterSize(f, packed.BufferBytes)}, err
}

func (e *oracleEncoder) encode(requests []Request) error {
	for _, r := range requests {
		if r.Size < 0 || r.Size > math.MaxUint32 || r.Time < 0 || r.Time > math.MaxUint32 {
			return fmt.Errorf("%w: size (%d) and time (%d) must be 0 to 2^32 - 1 in oraclegeneral", ErrFormat, r.Size, r.Time)
		}
		b := binary.LittleEndian.AppendUint32(e.out.AvailableBuffer(), uint32(r.Time))
		b = binary.LittleEndian.AppendUint64(b, r.ID)
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Size))
		b = binary.LittleEndian.AppendUint64(b, ^uint64(0))
		if _, err := e.out.Write(b); err != nil {
			return err
		}
		e.records++
	}
	return nil
}

func (e *oracleEncoder) end() error {
	if err := e.out.Flush(); err != nil {
		return err
	}
	const step = packed.BufferBytes / oracleBytes
	last := map[uint64]int64{} // logical time, from 1, of the earliest request seen for each ID
	block := make([]byte, step*oracleBytes)
	for end := e.records; end > 0; {
		begin := (end - 1) / step * step
		b := block[:(end-begin)*oracleBytes]
		if _, err := e.f.ReadAt(b, begin*oracleBytes); err != nil {
			return err
		}
		for i := end - 1; i >= begin; i-- {
			record := b[(i-begin)*oracleBytes:]
			id := binary.LittleEndian.Uint64(record[4:])
			if next, ok := last[id]; ok {
				binary.LittleEndian.PutUint64(record[16:], uint64(next))
			}
			last[id] = i + 1
		}
		if _, err := e.f.WriteAt(b, begin*oracleBytes); err != nil {
			return err
		}
		end = begin
	}
	return e.w.adopt(e.f)
}
