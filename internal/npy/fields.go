package npy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

// checkFields decodes a structured type: each item of the array is a row of parts. The array gets a further axis, of the elements of a row:
// one, or as many as there are if all fields have the same type.
func (h *header) checkFields() error {
	of, columns, err := parseFields(h.fields)
	if err != nil {
		return err
	}
	if h.fortran && len(h.shape) > 1 {
		return fmt.Errorf("array of a structured dtype with shape %s must be in C order", clip(shapeString(h.shape)))
	}
	h.dtype, h.shape, h.fortran = of, append(h.shape, columns), false
	return nil
}

// parseFields decodes the fields of a structured type, a list of (name, type) or (name, type, shape).
func parseFields(descr json.RawMessage) (of dtype.Type, columns int, err error) {
	shown := clip(strings.ReplaceAll(string(descr), `"`, "'"))
	fail := func(format string, args ...any) (dtype.Type, int, error) {
		return dtype.Invalid, 0, fmt.Errorf("structured dtype (%s): %w", shown, fmt.Errorf(format, args...))
	}
	var fields [][]json.RawMessage
	if json.Unmarshal(descr, &fields) != nil || len(fields) == 0 {
		return dtype.Invalid, 0, errDescr(fmt.Sprintf("%q", shown))
	}
	var parts []dtype.Part
	for i, f := range fields {
		var name, code string
		if len(f) < 2 || len(f) > 3 || json.Unmarshal(f[0], &name) != nil {
			return fail("field %d must be a name, a type and perhaps a shape", i)
		}
		if json.Unmarshal(f[1], &code) != nil {
			return fail("field %d (%q) must not be structured itself", i, clip(name))
		}
		if name == "" {
			return fail("field %d (%q) must not be padding: fields follow each other without gaps", i, clip(code))
		}
		part, big, err := parseDescr(code)
		if err != nil {
			return fail("field %d (%q): %w", i, clip(name), err)
		}
		if big && part.Size() > 1 {
			return fail("field %d (%q, %q) must be little-endian", i, clip(name), clip(code))
		}
		count := 1
		if len(f) == 3 {
			if count, err = elementsOf(f[2]); err != nil {
				return fail("field %d (%q): %w", i, clip(name), err)
			}
		}
		parts = append(parts, dtype.Part{Type: part, Count: count})
		columns += count
	}
	if of, err = dtype.RowOf(parts...); err != nil {
		return fail("%w", err)
	}
	if of.IsRow() {
		columns = 1
	}
	return of, columns, nil
}

// elementsOf returns the number of elements of a field's shape: a number, or a list of numbers.
func elementsOf(text json.RawMessage) (int, error) {
	var shape []int
	if one := 0; json.Unmarshal(text, &one) == nil {
		shape = []int{one}
	} else if json.Unmarshal(text, &shape) != nil {
		return 0, errors.New("shape must be a tuple of numbers")
	}
	count := 1
	for _, n := range shape {
		if n < 1 || n > math.MaxInt32 || count > math.MaxInt32/n {
			return 0, fmt.Errorf("shape %s must have axes of at least 1 and at most %d elements", clip(shapeString(shape)), math.MaxInt32)
		}
		count *= n
	}
	return count, nil
}
