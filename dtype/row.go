package dtype

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Part is Count elements of a Type, one behind the other.
type Part struct {
	Type  Type
	Count int
}

// Limits of rows of parts.
const (
	maxParts = 64
	maxRow   = 1 << 20 // bytes
	firstRow = 256     // the Type of the first one that a process makes
	maxRows  = 1<<16 - firstRow
)

// A row is what a Type from firstRow on stands for. There is one for each name, so that Types can be compared.
type row struct {
	name  string
	parts []Part
	size  int
}

// rows are those that this process has made. Their number is no part of any format: files and other processes have the name.
var rows struct {
	sync.RWMutex
	all    []*row
	byName map[string]Type
}

// RowOf returns the type of rows that consist of parts of different types, one behind the other without gaps, such as quantised values and
// their scales. Neighbouring parts of one type are one part. A single part is its elements' type, not a row. An element of a row of parts is a
// whole row: its Size is the row's length.
func RowOf(parts ...Part) (Type, error) {
	r := &row{}
	for i, p := range parts {
		if p.Type.Size() == 0 || p.Type.Parts() != nil {
			return Invalid, fmt.Errorf("dtype: type (%v) of part %d must be an element's", p.Type, i)
		}
		if p.Count < 1 || p.Count > maxRow {
			return Invalid, fmt.Errorf("dtype: elements (%d) of part %d must be 1 to %d", p.Count, i, maxRow)
		}
		if n := len(r.parts); n > 0 && r.parts[n-1].Type == p.Type {
			r.parts[n-1].Count += p.Count
		} else {
			r.parts = append(r.parts, p)
		}
		if r.size += p.Count * p.Type.Size(); r.size > maxRow {
			return Invalid, fmt.Errorf("dtype: row of parts (%d bytes and more) must have at most %d", r.size, maxRow)
		}
	}
	if len(r.parts) == 1 {
		return r.parts[0].Type, nil
	}
	if len(r.parts) == 0 || len(r.parts) > maxParts {
		return Invalid, fmt.Errorf("dtype: parts (%d) of a row must be 1 to %d", len(r.parts), maxParts)
	}
	var names []string
	for _, p := range r.parts {
		name := p.Type.String()
		if p.Count > 1 {
			name += "*" + strconv.Itoa(p.Count)
		}
		names = append(names, name)
	}
	r.name = strings.Join(names, ",")
	rows.Lock()
	defer rows.Unlock()
	if t, ok := rows.byName[r.name]; ok {
		return t, nil
	}
	if len(rows.all) == maxRows {
		return Invalid, fmt.Errorf("dtype: different rows of parts (%d) of a process must be at most %d", maxRows+1, maxRows)
	}
	if rows.byName == nil {
		rows.byName = map[string]Type{}
	}
	t := Type(firstRow + len(rows.all))
	rows.all = append(rows.all, r)
	rows.byName[r.name] = t
	return t, nil
}

// Parts returns the parts of a row of parts, nil for other types.
func (t Type) Parts() []Part {
	if r := t.row(); r != nil {
		return slices.Clone(r.parts)
	}
	return nil
}

// IsRow reports whether t is the type of a row of parts.
func (t Type) IsRow() bool { return t.row() != nil }

// CheckAs returns an error unless elements of another type, in rows of rowBytes, can be taken for those of t: they are as long, or t is a row of
// parts that is as long as the rows. A row of parts can be taken for any elements that fill it.
func (t Type) CheckAs(other Type, rowBytes int) error {
	switch {
	case t.IsRow() && t.Size() != rowBytes:
		return fmt.Errorf("row of parts (%v, %d bytes) must have the row's %d bytes", t, t.Size(), rowBytes)
	case t.IsRow(), other.IsRow() && t.Size() > 0 && rowBytes%t.Size() == 0:
		return nil
	case t.Size() == 0 || t.Size() != other.Size():
		return fmt.Errorf("element type (%v) must have the %d bytes of %v", t, other.Size(), other)
	}
	return nil
}

// row returns what t stands for, nil for types of elements.
func (t Type) row() *row {
	if t < firstRow {
		return nil
	}
	rows.RLock()
	defer rows.RUnlock()
	if i := int(t) - firstRow; i < len(rows.all) {
		return rows.all[i]
	}
	return nil
}

// parseRow is Parse for names with parts.
func parseRow(name string) (Type, error) {
	if strings.Count(name, ",") >= maxParts {
		return Invalid, fmt.Errorf("dtype: parts (%d) of a row must be 1 to %d", strings.Count(name, ",")+1, maxParts)
	}
	var parts []Part
	for part := range strings.SplitSeq(name, ",") {
		element, number, many := strings.Cut(part, "*")
		of, err := Parse(element)
		if err != nil {
			return Invalid, err
		}
		count := 1
		if many {
			if count, err = strconv.Atoi(number); err != nil || count < 1 || strconv.Itoa(count) != number {
				return Invalid, fmt.Errorf("dtype: elements (%q) of a part must be a number from 1 on", number)
			}
		}
		parts = append(parts, Part{of, count})
	}
	t, err := RowOf(parts...)
	if err == nil && !t.IsRow() {
		err = fmt.Errorf("dtype: row of parts (%q) must have elements of different types; rows of one type are %v", name, t)
	}
	return t, err
}
