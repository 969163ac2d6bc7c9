package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

const (
	magic = "\x93NUMPY"

	// maxHeaderBytes bounds the header's text: what version 1 can express. numpy itself
	// stops at 10,000 characters; more lets us name the dtype of a file that has a long
	// one.
	maxHeaderBytes = 64 << 10

	// maxRank is numpy's own bound (NPY_MAXDIMS of numpy 2).
	maxRank = 64
)

// header is what stands before an array's data, checked.
type header struct {
	dtype   dtype.Type
	big     bool // elements are big-endian
	fortran bool // the first axis varies fastest
	shape   []int
	bytes   int64 // magic to the first byte of data
}

// readHeader reads and checks the header of an array that is size bytes long
// altogether. It leaves r at the first byte of data.
func readHeader(r io.Reader, size int64) (header, error) {
	var buf [12]byte
	n, err := io.ReadFull(r, buf[:len(magic)])
	if string(buf[:n]) != magic[:n] || n == 0 && isEOF(err) {
		return header{}, errMagic(string(buf[:n]))
	}
	if err == nil {
		var m int
		m, err = io.ReadFull(r, buf[n:10])
		n += m
	}
	if err != nil {
		return header{}, headerIOFault(n, 10, err)
	}
	version, minor := buf[6], buf[7]
	if version < 1 || version > 3 || minor != 0 {
		return header{}, faultf(ErrFormat, "version (%d.%d) must be 1.0, 2.0 or 3.0", version, minor)
	}
	textBytes := int64(binary.LittleEndian.Uint16(buf[8:10]))
	if version > 1 {
		m, err := io.ReadFull(r, buf[10:12])
		n += m
		if err != nil {
			return header{}, headerIOFault(n, 12, err)
		}
		textBytes = int64(binary.LittleEndian.Uint32(buf[8:12]))
	}
	if textBytes > maxHeaderBytes {
		return header{}, faultf(ErrFormat, "header length (%d) must be at most %d bytes", textBytes, maxHeaderBytes)
	}
	total := int64(n) + textBytes
	if total > size {
		return header{}, faultf(ErrFormat, "header bytes (%d) must be %d: truncated", size, total)
	}
	text := make([]byte, textBytes)
	if m, err := io.ReadFull(r, text); err != nil {
		return header{}, headerIOFault(n+m, total, err)
	}
	h, err := parseHeader(string(text), n)
	h.bytes = total
	return h, err
}

func isEOF(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

func headerIOFault(present int, needed int64, err error) error {
	if isEOF(err) {
		return faultf(ErrFormat, "header bytes (%d) must be %d: truncated", present, needed)
	}
	return ioFault(fmt.Sprintf("reading the header (%d bytes)", needed), err)
}

func errMagic(first string) error {
	if first == "" {
		return faultf(ErrFormat, `file (0 bytes) must not be empty`)
	}
	return faultf(ErrFormat, `first bytes (%q) must be %q of an .npy file or "PK" of an .npz archive`, first, magic)
}

// parseHeader parses the dict, which starts at byte base of the file. Only the text
// is judged here; sizes are checkSize's.
func parseHeader(text string, base int) (header, error) {
	p := parser{s: text, base: base}
	var h header
	var descr string
	var structured bool
	seen := make(map[string]bool, 3)

	if err := p.expect('{'); err != nil {
		return h, err
	}
	for !p.accept('}') {
		at := p.i
		key, err := p.str()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, p.faultAt(at, fmt.Sprintf("key (%q) must occur once", clip(key)))
		}
		seen[key] = true
		if err := p.expect(':'); err != nil {
			return h, err
		}
		switch key {
		case "descr":
			descr, structured, err = p.descr()
		case "fortran_order":
			h.fortran, err = p.boolean()
		case "shape":
			h.shape, err = p.shape()
		default:
			err = p.faultAt(at, fmt.Sprintf("key (%q) must be 'descr', 'fortran_order' or 'shape'", clip(key)))
		}
		if err != nil {
			return h, err
		}
		if !p.accept(',') {
			if err := p.expect('}'); err != nil {
				return h, err
			}
			break
		}
	}
	if p.peek() != 0 || p.i != len(p.s) {
		return h, p.unexpected("the end")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, faultf(ErrFormat, "header keys (%d) must include %q", len(seen), key)
		}
	}
	if structured {
		return h, errDescr(printable(clip(descr)))
	}
	var err error
	h.dtype, h.big, err = parseDescr(descr)
	return h, err
}

// checkSize rejects shapes that no caller can use and returns the bytes of the data.
func (h *header) checkSize(minRank int) (dataBytes int, err error) {
	if rank := len(h.shape); rank < minRank {
		return 0, faultf(ErrShape, "rank (%d) of shape %s must be at least %d", rank, shapeString(h.shape), minRank)
	}
	for _, n := range h.shape {
		if n == 0 {
			return 0, faultf(ErrShape, "shape %s must have no axis of length 0", shapeString(h.shape))
		}
	}
	dataBytes, ok := shapeBytes(h.dtype, h.shape)
	if !ok {
		return 0, faultf(ErrShape, "shape %s of %s must need at most %d bytes", shapeString(h.shape), h.dtype, math.MaxInt)
	}
	return dataBytes, nil
}

// checkData compares the bytes that follow the header with those that it needs.
func (h *header) checkData(present, needed int64) error {
	switch {
	case present < needed:
		return faultf(ErrFormat, "data bytes (%d) must be %d for shape %s of %s: truncated",
			present, needed, shapeString(h.shape), h.dtype)
	case present > needed:
		return faultf(ErrFormat, "trailing bytes (%d) must be 0: shape %s of %s needs %d bytes",
			present-needed, shapeString(h.shape), h.dtype, needed)
	}
	return nil
}

// shapeBytes returns the bytes of an array; ok is false if they overflow an int.
func shapeBytes(d dtype.Type, shape []int) (n int, ok bool) {
	n = d.Size()
	zero := false
	for _, axis := range shape {
		if axis == 0 {
			zero = true
			continue
		}
		if axis < 0 || n > math.MaxInt/axis {
			return 0, false
		}
		n *= axis
	}
	if zero {
		n = 0
	}
	return n, true
}

// shapeString formats a shape as numpy does: (), (5,), (2, 3).
func shapeString(shape []int) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, n := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	if len(shape) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
	return b.String()
}

// parser reads the subset of Python literals that numpy writes in headers.
type parser struct {
	s    string
	i    int
	base int // offset of s in the file, for errors
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

func (p *parser) accept(c byte) bool {
	if p.peek() != c || p.i == len(p.s) {
		return false
	}
	p.i++
	return true
}

func (p *parser) expect(c byte) error {
	if !p.accept(c) {
		return p.unexpected(strconv.QuoteRune(rune(c)))
	}
	return nil
}

// str reads a quoted string. numpy never needs an escape in what we accept.
func (p *parser) str() (string, error) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", p.unexpected("a quoted string")
	}
	start := p.i + 1
	for p.i = start; p.i < len(p.s); p.i++ {
		switch p.s[p.i] {
		case quote:
			p.i++
			return p.s[start : p.i-1], nil
		case '\\', '\n':
			return "", p.unexpected("a quoted string without escapes")
		}
	}
	return "", p.unexpected("a closing quote")
}

// descr reads a dtype: a string, or the source text of a structured one.
func (p *parser) descr() (text string, structured bool, err error) {
	if c := p.peek(); c == '[' || c == '(' {
		text, err = p.nested()
		return text, true, err
	}
	text, err = p.str()
	return text, false, err
}

// nested returns the text of a bracketed expression, which only errors will show.
func (p *parser) nested() (string, error) {
	start, depth := p.i, 0
	var quote byte
	for ; p.i < len(p.s); p.i++ {
		c := p.s[p.i]
		switch {
		case quote != 0 && c == '\\':
			p.i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '[' || c == '(':
			depth++
		case c == ']' || c == ')':
			if depth--; depth == 0 {
				p.i++
				return p.s[start:p.i], nil
			}
		}
	}
	p.i = len(p.s)
	return "", p.unexpected("a closing bracket")
}

func (p *parser) boolean() (bool, error) {
	p.peek()
	for _, word := range []string{"True", "False"} {
		if strings.HasPrefix(p.s[p.i:], word) {
			p.i += len(word)
			return word == "True", nil
		}
	}
	return false, p.unexpected("True or False")
}

// shape reads a tuple of axes. A lone (5) is a number in Python, hence no tuple.
func (p *parser) shape() ([]int, error) {
	if err := p.expect('('); err != nil {
		return nil, err
	}
	shape := []int{}
	for !p.accept(')') {
		n, err := p.axis()
		if err != nil {
			return nil, err
		}
		if len(shape) == maxRank {
			return nil, faultf(ErrShape, "rank (more than %d) must be at most %d", maxRank, maxRank)
		}
		shape = append(shape, n)
		if !p.accept(',') {
			if len(shape) == 1 {
				return nil, p.unexpected("','")
			}
			if err := p.expect(')'); err != nil {
				return nil, err
			}
			break
		}
	}
	return shape, nil
}

func (p *parser) axis() (int, error) {
	negative := p.accept('-')
	p.peek()
	start := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	digits := p.s[start:p.i]
	switch {
	case digits == "":
		return 0, p.unexpected("a decimal number")
	case len(digits) > 1 && digits[0] == '0':
		return 0, p.faultAt(start, fmt.Sprintf("number (%s) must not start with 0", clip(digits)))
	case negative:
		return 0, faultf(ErrShape, "axis (-%s) must not be negative", clip(digits))
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0, faultf(ErrShape, "axis (%s) must be at most %d", clip(digits), math.MaxInt)
	}
	return n, nil
}

// unexpected reports the byte at the current position.
func (p *parser) unexpected(want string) error {
	if p.i >= len(p.s) {
		return p.faultAt(len(p.s), fmt.Sprintf("end must be %s", want))
	}
	return p.faultAt(p.i, fmt.Sprintf("text (%q) must be %s", clip(p.s[p.i:min(p.i+8, len(p.s))]), want))
}

func (p *parser) faultAt(i int, text string) error {
	return faultf(ErrFormat, "header at byte %d: %s", p.base+i, text)
}
