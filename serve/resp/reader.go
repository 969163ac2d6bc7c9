package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// limits bound what a client can make the server keep. A command of a client that has not authenticated is short: an AUTH or a HELLO.
type limits struct{ args, bytes int }

var (
	unknownLimits = limits{args: 16, bytes: 4 << 10}
	clientLimits  = limits{args: 1<<20 + 2, bytes: 64 << 20}
)

// errProtocol is the error of bytes that are not RESP, or beyond the limits. The connection ends after it, because where the next command begins is not known.
type errProtocol string

func (e errProtocol) Error() string { return "Protocol error: " + string(e) }

// reader reads commands: arrays of bulk strings, or one line of words. It keeps at most twice the bytes that have arrived, whatever lengths are
// announced.
type reader struct {
	from    *bufio.Reader
	account account  // of the command
	inline  bool     // the command is a line of words
	buf     []byte   // the bytes of the command's arguments, back to back
	ends    []int    // where in buf each argument ends
	args    [][]byte // the arguments
}

// keepBytes is the most that a reader keeps from one command to the next.
const keepBytes = 64 << 10

// next returns the arguments of the next command, at least one. They are valid until the following call. The error is errProtocol, or of the
// connection; io.EOF only between commands.
func (r *reader) next(l limits) ([][]byte, error) {
	for {
		if cap(r.buf) > keepBytes {
			r.buf = nil
		}
		if cap(r.args) > keepBytes/16 {
			r.args, r.ends = nil, nil
		}
		r.buf, r.ends, r.args = r.buf[:0], r.ends[:0], r.args[:0]
		if r.account.bytes > 0 { // of the command before
			if err := r.hold(cap(r.buf)); err != nil {
				return nil, err
			}
		}
		if _, err := r.from.Peek(1); err != nil { // it waits for the command
			return nil, err
		}
		if r.whole(l) {
			return r.args, nil
		}
		r.args = r.args[:0]
		if err := r.hold(cap(r.buf)); err != nil {
			return nil, err
		}
		first, err := r.from.ReadByte()
		if err != nil {
			return nil, err
		}
		if r.inline = first != '*'; !r.inline {
			err = r.array(l)
		} else if err = r.from.UnreadByte(); err == nil {
			err = r.words(l)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		begin := 0
		for _, end := range r.ends {
			r.args = append(r.args, r.buf[begin:end:end])
			begin = end
		}
		if len(r.args) > 0 { // an empty line, or an empty array, is no command
			return r.args, nil
		}
	}
}

// whole takes a command that has arrived whole: its arguments are where they were read to. It is false, and takes nothing, if it has not, or is not a plain
// array of bulk strings within the limits; then next reads it piece by piece, and finds what is wrong.
func (r *reader) whole(l limits) bool {
	b, _ := r.from.Peek(r.from.Buffered())
	n, at, ok := digits(b, 0, '*')
	if !ok || n == 0 || n > min(l.args, keepBytes/16) || len(b) > l.bytes {
		return false
	}
	for range n {
		size, begin, ok := digits(b, at, '$')
		end := begin + size
		if at = end + 2; !ok || at > len(b) || b[end] != '\r' || b[end+1] != '\n' {
			return false
		}
		r.args = append(r.args, b[begin:end:end])
	}
	r.from.Discard(at)
	r.inline = false
	return true
}

// digits reads a character, a number of at most 6 digits, and CRLF, from b[at:]. next is what follows it.
func digits(b []byte, at int, kind byte) (n, next int, ok bool) {
	if at >= len(b) || b[at] != kind {
		return 0, 0, false
	}
	for i, c := range b[at+1 : min(len(b), at+8)] {
		if c -= '0'; c <= 9 {
			n = 10*n + int(c)
			continue
		}
		next = at + 1 + i + 2
		return n, next, i > 0 && next <= len(b) && b[next-2] == '\r' && b[next-1] == '\n'
	}
	return 0, 0, false
}

// array reads what follows the * of an array of bulk strings.
func (r *reader) array(l limits) error {
	n, err := r.length("multibulk", l.args)
	if err != nil {
		return err
	}
	for range n {
		kind, err := r.from.ReadByte()
		if err != nil {
			return err
		}
		if kind != '$' {
			return errProtocol(fmt.Sprintf("expected '$', got %q", kind))
		}
		size, err := r.length("bulk", l.bytes-len(r.buf))
		if err != nil {
			return err
		}
		if size < 0 {
			return errProtocol("invalid bulk length")
		}
		if err := r.bytes(size); err != nil {
			return err
		}
		end, err := r.from.Peek(2)
		if err != nil {
			return err
		}
		if string(end) != "\r\n" {
			return errProtocol("a bulk string must end in CRLF")
		}
		r.from.Discard(2)
		r.ends = append(r.ends, len(r.buf))
		if len(r.ends)%1024 == 0 {
			if err := r.hold(cap(r.buf)); err != nil {
				return err
			}
		}
	}
	return nil
}

// argBytes is about what an argument takes beside its text: here, and as a row of a batch.
const argBytes = 96

// hold accounts for the command with a buffer of so many bytes. They count twice, as TC.SET copies its values.
func (r *reader) hold(buf int) error { return r.account.set(2*buf + argBytes*(len(r.ends)&^1023)) }

// bytes appends so many bytes to buf. It allocates as they arrive.
func (r *reader) bytes(n int) error {
	for n > 0 {
		part := min(n, max(4<<10, len(r.buf)))
		at := len(r.buf)
		if cap(r.buf)-at < part {
			if err := r.hold(2*at + part); err != nil {
				return err
			}
			r.buf = append(make([]byte, 0, 2*at+part), r.buf...)
		}
		r.buf = r.buf[:at+part]
		if _, err := io.ReadFull(r.from, r.buf[at:]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// length reads a decimal number and CRLF. -1 and less are returned as -1.
func (r *reader) length(what string, most int) (int, error) {
	line, err := r.line(32)
	if err != nil {
		return 0, err
	}
	if len(line) > 0 && line[0] == '-' {
		if n, ok := number(line[1:]); !ok || n == 0 {
			return 0, errProtocol("invalid " + what + " length")
		}
		return -1, nil
	}
	n, ok := number(line)
	if !ok {
		return 0, errProtocol("invalid " + what + " length")
	}
	if n > int64(most) {
		return 0, errProtocol(fmt.Sprintf("%s length (%d) must be at most %d", what, n, most))
	}
	return int(n), nil
}

// line reads up to CRLF, at most so many bytes. The result is valid until the next read.
func (r *reader) line(most int) ([]byte, error) {
	line, err := r.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > most {
		return nil, errProtocol("too big a line")
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// words reads a line of words, as a person types them.
func (r *reader) words(l limits) error {
	line, err := r.line(4 << 10)
	if err != nil {
		return err
	}
	for word := range bytes.FieldsSeq(line) {
		r.buf = append(r.buf, word...)
		r.ends = append(r.ends, len(r.buf))
	}
	if len(r.ends) > l.args {
		return errProtocol(fmt.Sprintf("words (%d) must be at most %d", len(r.ends), l.args))
	}
	return nil
}

// number reads decimal digits.
func number(digits []byte) (n int64, ok bool) {
	if len(digits) == 0 {
		return 0, false
	}
	for _, d := range digits {
		d -= '0'
		if d > 9 || n > (math.MaxInt64-int64(d))/10 {
			return 0, false
		}
		n = 10*n + int64(d)
	}
	return n, true
}
