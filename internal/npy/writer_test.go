package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

const (
	// headerAlign is what numpy aligns the data to, in bytes.
	headerAlign = 64
	// growDigits is the room that numpy leaves for the first axis to grow in place.
	growDigits = 21
)

// Write writes an array as .npy version 1.0 to w, byte for byte as numpy.save does.
// data are the elements, little-endian and in C order; len(data) must be what shape and the
// element type need. Axes may be 0 and shape may be empty (a scalar), though Open rejects both.
//
// It rejects Invalid, which the format cannot hold, and data that do not agree with the shape.
func Write(w io.Writer, of dtype.Type, shape []int, data []byte) error {
	descr := descrOf(of)
	switch {
	case descr == "":
		return errDescr(of.String())
	}
	if len(shape) > maxRank {
		return fmt.Errorf("rank (%d) must be at most %d", len(shape), maxRank)
	}
	needed, ok := shapeBytes(of, shape)
	if !ok {
		return fmt.Errorf("shape %s of %s must need at most %d bytes and have no negative axis", shapeString(shape), of, math.MaxInt)
	}
	if len(data) != needed {
		return fmt.Errorf("data bytes (%d) must be %d for shape %s of %s", len(data), needed, shapeString(shape), of)
	}
	if _, err := io.WriteString(w, headerText(descr, shape)); err != nil {
		return fmt.Errorf("npy: writing the header: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("npy: writing the data (%d bytes): %w", len(data), err)
	}
	return nil
}

// headerText returns everything before the data.
func headerText(descr string, shape []int) string {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shapeString(shape))
	if len(shape) > 0 {
		dict += strings.Repeat(" ", growDigits-len(strconv.Itoa(shape[0])))
	}
	prefix := len(magic) + 4
	// numpy pads an aligned header by a whole unit, and so do we.
	pad := headerAlign - (prefix+len(dict)+1)%headerAlign
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)+pad+1))
	return string(b) + dict + strings.Repeat(" ", pad) + "\n"
}

// descrOf returns what numpy writes for d in little-endian order, "" where npy has
// no code for d.
func descrOf(d dtype.Type) string {
	if int(d) >= len(codes) || codes[d] == "" {
		return ""
	}
	if d.Size() == 1 {
		return "|" + codes[d]
	}
	return "<" + codes[d]
}

// shapeBytes returns the bytes of an array; ok is false if they overflow an int.
func shapeBytes(d dtype.Type, shape []int) (n int, ok bool) {
	n = d.Size()
	if slices.Contains(shape, 0) {
		return 0, true
	}
	for _, axis := range shape {
		if axis < 0 || n > math.MaxInt/axis {
			return 0, false
		}
		n *= axis
	}
	return n, true
}
