package npy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

const (
	magic = "\x93NUMPY"

	// maxHeaderBytes bounds the header's text: what version 1 can express.
	maxHeaderBytes = 64 << 10

	// maxRank is numpy's own bound (NPY_MAXDIMS of numpy 2).
	maxRank = 64
)

// header is what stands before an array's data.
type header struct {
	descr   string          // "" for a structured type
	fields  json.RawMessage // of a structured type
	fortran bool            // the first axis varies fastest
	shape   []int
	bytes   int64 // magic to the first byte of data

	// Set by check.
	dtype dtype.Type
	big   bool // elements are big-endian
}

// readHeader reads the header of an array that is size bytes long altogether. It leaves r at the first byte of data.
func readHeader(r io.Reader, size int64) (header, error) {
	prefix := make([]byte, len(magic)+4)
	n, err := io.ReadFull(r, prefix)
	if first := string(prefix[:min(n, len(magic))]); n == 0 && isEOF(err) || !strings.HasPrefix(magic, first) {
		return header{}, errMagic(first)
	}
	if err != nil {
		return header{}, headerError(n, int64(len(prefix)), err)
	}
	version, minor := prefix[6], prefix[7]
	if version < 1 || version > 3 || minor != 0 {
		return header{}, fmt.Errorf("version (%d.%d) must be 1.0, 2.0 or 3.0", version, minor)
	}
	if version > 1 { // the length has 4 bytes
		prefix = append(prefix, 0, 0)
		if m, err := io.ReadFull(r, prefix[n:]); err != nil {
			return header{}, headerError(n+m, int64(len(prefix)), err)
		}
	}
	textBytes := int64(binary.LittleEndian.Uint32(append(prefix[8:len(prefix):len(prefix)], 0, 0)))
	if textBytes > maxHeaderBytes {
		return header{}, fmt.Errorf("header length (%d) must be at most %d bytes", textBytes, maxHeaderBytes)
	}
	total := int64(len(prefix)) + textBytes
	if total > size {
		return header{}, fmt.Errorf("header bytes (%d) must be %d: truncated", size, total)
	}
	text := make([]byte, textBytes)
	if m, err := io.ReadFull(r, text); err != nil {
		return header{}, headerError(len(prefix)+m, total, err)
	}
	h, err := parseHeader(string(text))
	h.bytes = total
	return h, err
}

func isEOF(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }

func headerError(present int, needed int64, err error) error {
	if isEOF(err) {
		return fmt.Errorf("header bytes (%d) must be %d: truncated", present, needed)
	}
	return readError(fmt.Sprintf("reading the header (%d bytes)", needed), err)
}

func errMagic(first string) error {
	if first == "" {
		return errors.New("file (0 bytes) must not be empty")
	}
	return fmt.Errorf(`first bytes (%q) must be %q of an .npy file or "PK" of an .npz archive`, first, magic)
}

// trailingComma is what Python allows before a closing bracket and JSON does not.
var trailingComma = regexp.MustCompile(`,\s*([\]}])`)

// parseHeader parses the dict, a Python literal that is JSON but for quotes, tuples, capitals and trailing commas.
func parseHeader(text string) (h header, err error) {
	text = strings.TrimSpace(text)
	asJSON := strings.NewReplacer("'", `"`, "(", "[", ")", "]", "True", "true", "False", "false").Replace(text)
	var dict struct {
		Descr   json.RawMessage `json:"descr"`
		Fortran *bool           `json:"fortran_order"`
		Shape   []int           `json:"shape"`
	}
	if json.Unmarshal(trailingComma.ReplaceAll([]byte(asJSON), []byte("$1")), &dict) != nil ||
		dict.Descr == nil || dict.Fortran == nil || dict.Shape == nil {
		return h, fmt.Errorf("header (%q) must be a dict of descr, fortran_order and shape", clip(text))
	}
	h.shape, h.fortran = dict.Shape, *dict.Fortran
	if json.Unmarshal(dict.Descr, &h.descr) != nil {
		h.fields = dict.Descr
	}
	return h, nil
}

// check decodes the element type, rejects arrays that no caller can use, and returns the bytes of the data.
func (h *header) check(minRank int) (dataBytes int, err error) {
	if h.fields == nil {
		h.dtype, h.big, err = parseDescr(h.descr)
	} else {
		err = h.checkFields()
	}
	if err != nil {
		return 0, err
	}
	if rank := len(h.shape); rank < minRank {
		return 0, fmt.Errorf("rank (%d) of shape %s must be at least %d", rank, shapeString(h.shape), minRank)
	} else if rank > maxRank {
		return 0, fmt.Errorf("rank (%d) must be at most %d", rank, maxRank)
	}
	dataBytes = h.dtype.Size()
	for _, n := range h.shape {
		if n < 1 {
			return 0, fmt.Errorf("shape %s must have axes of at least 1", clip(shapeString(h.shape)))
		}
		if dataBytes > math.MaxInt/n {
			return 0, fmt.Errorf("shape %s of %s must need at most %d bytes", clip(shapeString(h.shape)), h.dtype, math.MaxInt)
		}
		dataBytes *= n
	}
	return dataBytes, nil
}

// checkData compares the bytes that follow the header with those that it needs.
func (h *header) checkData(present, needed int64) error {
	switch {
	case present < needed:
		return fmt.Errorf("data bytes (%d) must be %d for shape %s of %s: truncated",
			present, needed, shapeString(h.shape), h.dtype)
	case present > needed:
		return fmt.Errorf("trailing bytes (%d) must be 0: shape %s of %s needs %d bytes",
			present-needed, shapeString(h.shape), h.dtype, needed)
	}
	return nil
}

// shapeString formats a shape as numpy does: (), (5,), (2, 3).
func shapeString(shape []int) string {
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]")
	if len(shape) == 1 {
		text += ","
	}
	return "(" + text + ")"
}
