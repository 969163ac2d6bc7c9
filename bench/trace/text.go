package trace

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
)

const byteOrderMark = "\xef\xbb\xbf"

// parseUint reads decimal digits.
func parseUint(text []byte) (v uint64, ok bool) {
	if len(text) == 0 || len(text) > 20 {
		return 0, false
	}
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 || v > math.MaxUint64/10 || v*10 > math.MaxUint64-d {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// shorten keeps error texts readable.
func shorten(text []byte) string {
	if len(text) > 40 {
		return fmt.Sprintf("%q…", text[:40])
	}
	return fmt.Sprintf("%q", text)
}

// lines reads lines that hold something, and reports their faults.
type lines struct {
	s      *source
	limit  int
	offset int64 // of the current line
}

// next returns the next line without the space around it, skipping those that are empty or begin with one of skip.
func (l *lines) next(skip string) (line []byte, err error) {
	for {
		line, l.offset, err = l.s.readLine(l.limit)
		if err == io.EOF {
			return nil, err
		}
		if err != nil {
			return nil, l.s.fault(l.offset, l.s.line, err)
		}
		if l.s.line == 1 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && bytes.IndexByte([]byte(skip), line[0]) < 0 {
			return line, nil
		}
	}
}

// fault returns a fault of the current line.
func (l *lines) fault(format string, args ...any) error {
	return l.s.fault(l.offset, l.s.line, corrupt(format, args...))
}

// idsDecoder reads one ID a line. Lines with # or * in front are comments; LIRS traces mark phases with *.
type idsDecoder struct{ lines }

func newIDsDecoder(s *source) decoder { return &idsDecoder{lines{s: s, limit: maxLine}} }

func (d *idsDecoder) decode(dst []Request) (n int, err error) {
	for ; n < len(dst); n++ {
		line, err := d.next("#*")
		if err != nil {
			return n, err
		}
		id, ok := parseUint(line)
		if !ok {
			return n, d.fault("ID (%s) must be 0 to 2^64 - 1 in decimal digits", shorten(line))
		}
		dst[n] = Request{ID: id, Next: Unknown}
	}
	return n, nil
}

// idsEncoder writes one ID a line.
type idsEncoder struct{ o *output }

func newIDsEncoder(o *output) (encoder, error) { return &idsEncoder{o}, nil }

func (e *idsEncoder) encode(requests []Request) error {
	for _, r := range requests {
		e.o.text = append(strconv.AppendUint(e.o.text[:0], r.ID, 10), '\n')
		if _, err := e.o.w.Write(e.o.text); err != nil {
			return err
		}
	}
	return nil
}

func (e *idsEncoder) end() error { return nil }

// arcDecoder reads "start count ignore request", each line so many IDs from start on.
type arcDecoder struct {
	lines
	id, left uint64 // of the current line
	time     int64
}

func newARCDecoder(s *source) decoder { return &arcDecoder{lines: lines{s: s, limit: maxLine}} }

func (d *arcDecoder) decode(dst []Request) (n int, err error) {
	for ; n < len(dst); n++ {
		if d.left == 0 {
			if err := d.line(); err != nil {
				return n, err
			}
		}
		dst[n] = Request{ID: d.id, Next: Unknown, Time: d.time}
		d.id++
		d.left--
	}
	return n, nil
}

func (d *arcDecoder) line() error {
	line, err := d.next("#")
	if err != nil {
		return err
	}
	var v [4]uint64
	n := 0
	for f := range bytes.FieldsSeq(line) {
		if n < len(v) {
			var ok bool
			if v[n], ok = parseUint(f); !ok {
				return d.fault("field %d (%s) must be 0 to 2^64 - 1 in decimal digits", n+1, shorten(f))
			}
		}
		n++
	}
	if n != len(v) {
		return d.fault("fields (%d) must be 4: start, count, ignore, request", n)
	}
	if v[1] == 0 || v[1] > math.MaxUint32 || v[0] > math.MaxUint64-(v[1]-1) {
		return d.fault("count (%d) must be 1 to 2^32 - 1, and the last ID from %d on below 2^64", v[1], v[0])
	}
	if v[3] > math.MaxInt64 {
		return d.fault("request (%d) must be below 2^63", v[3])
	}
	d.id, d.left, d.time = v[0], v[1], int64(v[3])
	return nil
}

// arcEncoder writes runs of consecutive IDs as one line.
type arcEncoder struct {
	o         *output
	id, count uint64
	lines     uint64
}

func newARCEncoder(o *output) (encoder, error) { return &arcEncoder{o: o}, nil }

func (e *arcEncoder) encode(requests []Request) error {
	for _, r := range requests {
		if e.count > 0 && e.count < math.MaxUint32 && r.ID == e.id+e.count && r.ID != 0 {
			e.count++
			continue
		}
		if err := e.end(); err != nil {
			return err
		}
		e.id, e.count = r.ID, 1
	}
	return nil
}

// end writes the current run.
func (e *arcEncoder) end() error {
	if e.count == 0 {
		return nil
	}
	e.o.text = fmt.Appendf(e.o.text[:0], "%d %d 0 %d\n", e.id, e.count, e.lines)
	e.count = 0
	e.lines++
	_, err := e.o.w.Write(e.o.text)
	return err
}
