package bundle

import (
	"bytes"
	"fmt"
	"strconv"
)

// Packed is the text of a module whose registers and labels have relative numbers: of those with one name each has its distance from the one before. %r7
// behind %r5 is %r+2, and $L__BB0_4 behind $L__BB0_6 is $L__BB0_-2.
type Packed []byte

// Pack returns a module's text with relative numbers.
func Pack(text []byte) (Packed, error) {
	p := Packed(number(nil, text, false))
	if !bytes.Equal(p.Text(), text) {
		return nil, fmt.Errorf("bundle: a module has what reads as a relative number")
	}
	return p, nil
}

// Text returns the module's text.
func (p Packed) Text() []byte { return number(make([]byte, 0, len(p)+len(p)/4), p, true) }

// number appends a text to out, with absolute numbers for relative ones or the reverse. A number is that of a register if small letters lie between it and
// the % in front of it, or of a label if letters, digits and underscores lie between it and a $. (%SP+8 is no register's.)
func number(out, text []byte, absolute bool) []byte {
	last := map[string]*int{} // the last number by its name
	copied := 0
	for at := 0; at < len(text); at++ {
		if text[at] != '%' && text[at] != '$' {
			continue
		}
		name := at + 1 // where it ends
		for label := text[at] == '$'; name < len(text) && (isDigit(text[name]) || 'a' <= text[name] && text[name] <= 'z' || label && isCapital(text[name])); name++ {
		}
		end := name
		if !absolute {
			for isDigit(text[name-1]) {
				name--
			}
		} else if end < len(text) && (text[end] == '+' || text[end] == '-') {
			for end++; end < len(text) && isDigit(text[end]); end++ {
			}
		}
		n, err := strconv.Atoi(string(text[name:end]))
		if err != nil { // no number
			at = name - 1
			continue
		}
		before := last[string(text[at:name])]
		if before == nil {
			before = new(int)
			last[string(text[at:name])] = before
		}
		out = append(out, text[copied:name]...)
		if absolute {
			*before += n
			out = strconv.AppendInt(out, int64(*before), 10)
		} else {
			if n >= *before {
				out = append(out, '+')
			}
			out = strconv.AppendInt(out, int64(n-*before), 10)
			*before = n
		}
		copied, at = end, end-1
	}
	return append(out, text[copied:]...)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isCapital(c byte) bool { return 'A' <= c && c <= 'Z' || c == '_' }
