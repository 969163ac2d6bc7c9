package resp

import (
	"strconv"
	"strings"
)

// reply appends replies to out, as RESP2 or RESP3 writes them.
type reply struct {
	out   []byte
	proto int // 2 or 3
}

// head appends a type, a number and CRLF.
func (r *reply) head(kind byte, n int64) {
	r.out = append(r.out, kind)
	r.out = strconv.AppendInt(r.out, n, 10)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) integer(n int64) { r.head(':', n) }

// array announces n replies.
func (r *reply) array(n int) { r.head('*', int64(n)) }

// dict announces n pairs of replies.
func (r *reply) dict(n int) {
	if r.proto == 3 {
		r.head('%', int64(n))
		return
	}
	r.array(2 * n)
}

// setOf announces n replies, of which none is twice.
func (r *reply) setOf(n int) {
	if r.proto == 3 {
		r.head('~', int64(n))
		return
	}
	r.array(n)
}

// nullArray is null where another reply would be an array.
func (r *reply) nullArray() {
	if r.proto == 3 {
		r.null()
		return
	}
	r.out = append(r.out, "*-1\r\n"...)
}

func (r *reply) null() {
	if r.proto == 3 {
		r.out = append(r.out, "_\r\n"...)
		return
	}
	r.out = append(r.out, "$-1\r\n"...)
}

func (r *reply) ok() { r.out = append(r.out, "+OK\r\n"...) }

func (r *reply) simple(text string) {
	r.out = append(r.out, '+')
	r.out = append(r.out, text...)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) bulk(b []byte) {
	r.head('$', int64(len(b)))
	r.out = append(r.out, b...)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) text(s string) {
	r.head('$', int64(len(s)))
	r.out = append(r.out, s...)
	r.out = append(r.out, '\r', '\n')
}

// verbatim appends a text for people: as text to clients of RESP2.
func (r *reply) verbatim(s string) {
	if r.proto == 3 {
		r.head('=', int64(len(s)+4))
		r.out = append(r.out, "txt:"...)
		r.out = append(r.out, s...)
		r.out = append(r.out, '\r', '\n')
		return
	}
	r.text(s)
}

// oneLine takes line breaks out of errors, which would end them.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// fail appends an error: a code in capitals, such as ERR, and a text.
func (r *reply) fail(text string) {
	r.out = append(r.out, '-')
	r.out = append(r.out, oneLine.Replace(text)...)
	r.out = append(r.out, '\r', '\n')
}
