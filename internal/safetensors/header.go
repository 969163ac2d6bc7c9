package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

const (
	// maxHeaderBytes is the format's limit.
	maxHeaderBytes = 100_000_000

	prefixBytes = 8
	metadataKey = "__metadata__"
)

// tensor is an entry of the header.
type tensor struct {
	name     string
	stored   string     // the element type's name in the file
	dtype    dtype.Type // Invalid for one that package dtype does not have
	shape    []int
	from, to int64 // bytes in the data
}

// readHeader reads and checks the header of a file of the given bytes. It returns the tensors in the header's order, and the file's
// first byte of data.
func readHeader(f io.ReaderAt, size int64) (tensors []tensor, data int64, err error) {
	var prefix [prefixBytes]byte
	if n, err := f.ReadAt(prefix[:], 0); n < len(prefix) {
		if err == io.EOF {
			return nil, 0, fmt.Errorf("file (%d bytes) must have %d bytes with the header's length: truncated", n, len(prefix))
		}
		return nil, 0, datafile.ReadError("reading the header's length", err)
	}
	claimed := binary.LittleEndian.Uint64(prefix[:])
	if claimed < 2 || claimed > maxHeaderBytes {
		return nil, 0, fmt.Errorf("header length (%d) must be 2 to %d bytes", claimed, maxHeaderBytes)
	}
	data = prefixBytes + int64(claimed)
	if data > size {
		return nil, 0, fmt.Errorf("header bytes (%d) must be %d: truncated", size-prefixBytes, claimed)
	}
	text := make([]byte, claimed)
	if n, err := f.ReadAt(text, prefixBytes); n < len(text) {
		return nil, 0, datafile.ReadError(fmt.Sprintf("reading the header (%d bytes)", claimed), err)
	}
	if tensors, err = parseHeader(text); err != nil {
		return nil, 0, err
	}
	return tensors, data, checkCover(tensors, size-data)
}

// parseHeader parses and checks the JSON.
func parseHeader(text []byte) ([]tensor, error) {
	if text[0] != '{' {
		return nil, fmt.Errorf("header (%q) must begin with '{'", datafile.Clip(string(text[:min(len(text), 100)])))
	}
	if !utf8.Valid(text) {
		return nil, errors.New("header must be valid UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(text))}
	p.UseNumber()
	var tensors []tensor
	err := p.object("header", func(name string) error {
		if name == metadataKey {
			return p.object(metadataKey, func(key string) error {
				_, err := p.text(metadataKey + " of " + key)
				return err
			})
		}
		t, err := p.tensor(name)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if rest := strings.TrimRight(string(text[p.InputOffset():]), " \t\r\n"); rest != "" {
		return nil, fmt.Errorf("header must end after its object, not in %q", datafile.Clip(rest))
	}
	return tensors, nil
}

// parser takes a header's JSON apart token by token, so that keys that occur twice are seen.
type parser struct{ *json.Decoder }

// token returns the next token, of type T. what names it in errors, should describes T.
func token[T any](p parser, what, should string) (value T, err error) {
	at := p.InputOffset()
	next, err := p.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return value, fmt.Errorf("header at byte %d: %w", at, err)
	}
	value, ok := next.(T)
	if !ok {
		return value, fmt.Errorf("%s (%q at byte %d of the header) must be %s", datafile.Clip(what), datafile.Clip(fmt.Sprint(next)), at, should)
	}
	return value, nil
}

func (p parser) text(what string) (string, error) { return token[string](p, what, "a string") }

// open takes the bracket that an object or a list begins with.
func (p parser) open(what string, bracket json.Delim, should string) error {
	d, err := token[json.Delim](p, what, should)
	if err == nil && d != bracket {
		err = fmt.Errorf("%s (%q) must be %s", datafile.Clip(what), d.String(), should)
	}
	return err
}

// object takes an object whose values member takes.
func (p parser) object(what string, member func(key string) error) error {
	if err := p.open(what, '{', "an object"); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for p.More() {
		key, err := p.text("key")
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key (%q) of %s must occur once", datafile.Clip(key), datafile.Clip(what))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	_, err := token[json.Delim](p, what, "complete")
	return err
}

// integers takes a list of integers that are not negative.
func (p parser) integers(what string) (list []int, err error) {
	if err := p.open(what, '[', "a list"); err != nil {
		return nil, err
	}
	for p.More() {
		number, err := token[json.Number](p, what, "a list of integers")
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt {
			return nil, fmt.Errorf("%s (%s) must be integers of 0 to %d", datafile.Clip(what), datafile.Clip(number.String()), math.MaxInt)
		}
		list = append(list, int(n))
	}
	_, err = token[json.Delim](p, what, "complete")
	return list, err
}

// tensor takes an entry, and checks its bytes if its element type is known.
func (p parser) tensor(name string) (t tensor, err error) {
	t.name = name
	quoted := fmt.Sprintf("tensor %q", datafile.Clip(name))
	given := 0
	var offsets []int
	err = p.object(quoted, func(key string) (err error) {
		given++
		switch key {
		case "dtype":
			t.stored, err = p.text("dtype of " + quoted)
			t.dtype = typeOf(t.stored)
		case "shape":
			t.shape, err = p.integers("shape of " + quoted)
		case "data_offsets":
			offsets, err = p.integers("data_offsets of " + quoted)
		default:
			return fmt.Errorf("key (%q) of %s must be dtype, shape or data_offsets", datafile.Clip(key), quoted)
		}
		return err
	})
	if err != nil {
		return t, err
	}
	if given != 3 {
		return t, fmt.Errorf("%s must have dtype, shape and data_offsets", quoted)
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] {
		return t, fmt.Errorf("data_offsets (%v) of %s must be begin and end, in this order", offsets, quoted)
	}
	t.from, t.to = int64(offsets[0]), int64(offsets[1])
	if t.dtype == dtype.Invalid {
		return t, nil
	}
	needed := t.dtype.Size()
	for _, n := range t.shape {
		if n != 0 && needed > math.MaxInt/n {
			return t, fmt.Errorf("shape %v of %s must need at most %d bytes", t.shape, quoted, math.MaxInt)
		}
		needed *= n
	}
	if t.to-t.from != int64(needed) {
		return t, fmt.Errorf("data_offsets (%v) of %s must span the %d bytes of shape %v of %s", offsets, quoted, needed, t.shape, t.stored)
	}
	return t, nil
}

// checkCover checks that the tensors cover all bytes of the data, and none twice.
func checkCover(tensors []tensor, bytes int64) error {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b tensor) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	end := int64(0)
	for _, t := range order {
		if t.from != end {
			return fmt.Errorf("data_offsets ([%d %d]) of tensor %q must begin at %d, where the tensor before ends", t.from, t.to, datafile.Clip(t.name), end)
		}
		end = t.to
	}
	switch {
	case bytes < end:
		return fmt.Errorf("data bytes (%d) must be %d: truncated", bytes, end)
	case bytes > end:
		return fmt.Errorf("trailing bytes (%d) must be 0: the tensors need %d bytes", bytes-end, end)
	}
	return nil
}
