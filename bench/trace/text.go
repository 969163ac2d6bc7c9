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
func parseUint(text []byte) (uint64, error) { return strconv.ParseUint(string(text), 10, 64) }

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

// runDecoder reads formats whose lines are each a run of requests that are equal, or whose IDs are consecutive.
type runDecoder struct {
	lines
	comments string // what lines that say nothing begin with
	// parse returns a line's first request and how many there are, 0 for a line that has none.
	parse   func(line []byte) (first Request, count uint64, err error)
	step    uint64  // from one ID to the next
	request Request // the next one
	left    uint64  // of the current line
}

func (d *runDecoder) decode(dst []Request) (n int, err error) {
	for ; n < len(dst); n++ {
		for d.left == 0 {
			line, err := d.next(d.comments)
			if err != nil {
				return n, err
			}
			if d.request, d.left, err = d.parse(line); err != nil {
				return n, err
			}
		}
		dst[n] = d.request
		d.request.ID += d.step
		d.left--
	}
	return n, nil
}

// runEncoder writes such formats.
type runEncoder struct {
	w          *Writer
	request    Request // the first of the current run
	count      uint64
	most       uint64                         // requests of a run
	joins      func(r *Request) (bool, error) // whether r goes on with the current run
	appendLine func(text []byte) []byte
}

func (e *runEncoder) encode(requests []Request) error {
	for _, r := range requests {
		joins, err := e.joins(&r)
		if err != nil {
			return err
		}
		if joins && e.count > 0 && e.count < e.most {
			e.count++
			continue
		}
		if err := e.end(); err != nil {
			return err
		}
		e.request, e.count = r, 1
	}
	return nil
}

// end writes the current run.
func (e *runEncoder) end() error {
	if e.count == 0 {
		return nil
	}
	e.w.text = e.appendLine(e.w.text[:0])
	e.count = 0
	_, err := e.w.w.Write(e.w.text)
	return err
}

// newIDsDecoder reads one ID a line. Lines with # or * in front are comments; LIRS traces mark phases with *.
func newIDsDecoder(s *source) decoder {
	d := &runDecoder{lines: lines{s: s, limit: maxLine}, comments: "#*"}
	d.parse = func(line []byte) (Request, uint64, error) {
		id, err := parseUint(line)
		if err != nil {
			return Request{}, 0, d.fault("line (%s) must be one ID, 0 to 2^64 - 1 in decimal digits", shorten(line))
		}
		return Request{ID: id, Next: Unknown}, 1, nil
	}
	return d
}

func newIDsEncoder(w *Writer) (encoder, error) {
	e := &runEncoder{w: w, joins: func(*Request) (bool, error) { return false, nil }}
	e.appendLine = func(text []byte) []byte { return append(strconv.AppendUint(text, e.request.ID, 10), '\n') }
	return e, nil
}

// newARCDecoder reads "start count ignore request", each line so many IDs from start on.
func newARCDecoder(s *source) decoder {
	d := &runDecoder{lines: lines{s: s, limit: maxLine}, comments: "#", step: 1}
	d.parse = func(line []byte) (r Request, count uint64, err error) {
		var v [4]uint64
		n := 0
		for f := range bytes.FieldsSeq(line) {
			if n < len(v) {
				if v[n], err = parseUint(f); err != nil {
					return r, 0, d.fault("field %d (%s) must be 0 to 2^64 - 1 in decimal digits", n+1, shorten(f))
				}
			}
			n++
		}
		if n != len(v) {
			return r, 0, d.fault("fields (%d) must be 4: start, count, ignore, request", n)
		}
		if v[1] == 0 || v[1] > math.MaxUint32 || v[0] > math.MaxUint64-(v[1]-1) {
			return r, 0, d.fault("count (%d) must be 1 to 2^32 - 1, and the last ID from %d on below 2^64", v[1], v[0])
		}
		if v[3] > math.MaxInt64 {
			return r, 0, d.fault("request (%d) must be below 2^63", v[3])
		}
		return Request{ID: v[0], Next: Unknown, Time: int64(v[3])}, v[1], nil
	}
	return d
}

// newARCEncoder writes runs of consecutive IDs as one line.
func newARCEncoder(w *Writer) (encoder, error) {
	e := &runEncoder{w: w, most: math.MaxUint32}
	e.joins = func(r *Request) (bool, error) { return r.ID == e.request.ID+e.count && r.ID != 0, nil }
	lines := 0
	e.appendLine = func(text []byte) []byte {
		lines++
		return fmt.Appendf(text, "%d %d 0 %d\n", e.request.ID, e.count, lines-1)
	}
	return e, nil
}
