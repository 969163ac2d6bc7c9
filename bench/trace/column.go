package trace

import (
	"encoding/binary"
	"math"
	"slices"
)

// Columns of a block, in order. Each is a byte that says how its values are stored, and those.
const (
	columnID      = iota
	columnWhat    // operation + 4 × outcome
	columnBytes   // Size
	columnWhen    // Time
	columnNextUse // 0 unknown, 1 never, else the distance to the next access + 1
	blockColumns
)

// How a column is stored.
const (
	allZero = iota // nothing follows
	values         // varints
	deltas         // varints of zigzag differences to the value before, at first to 0
	runs           // pairs of such a difference and how many times it is added
	numModes
)

func zigzag(d uint64) uint64   { return d<<1 ^ uint64(int64(d)>>63) }
func unzigzag(z uint64) uint64 { return z>>1 ^ -(z & 1) }

// appendColumn appends the column in the way that takes the fewest bytes.
func appendColumn(b []byte, column []uint64) []byte {
	if !slices.ContainsFunc(column, func(v uint64) bool { return v != 0 }) {
		return append(b, allZero)
	}
	start, best, least := len(b), values, math.MaxInt
	for mode := values; mode < numModes; mode++ {
		b = appendValues(append(b[:start], byte(mode)), mode, column)
		if len(b) < least {
			best, least = mode, len(b)
		}
	}
	return appendValues(append(b[:start], byte(best)), best, column)
}

// appendValues appends what follows the byte that says how a column is stored.
func appendValues(b []byte, mode int, column []uint64) []byte {
	last, run := uint64(0), uint64(0)
	for i, v := range column {
		d := v - last
		last = v
		switch mode {
		case values:
			b = binary.AppendUvarint(b, v)
		case deltas:
			b = binary.AppendUvarint(b, zigzag(d))
		case runs:
			if run++; i+1 == len(column) || column[i+1]-v != d {
				b = binary.AppendUvarint(b, zigzag(d))
				b = binary.AppendUvarint(b, run)
				run = 0
			}
		}
	}
	return b
}

// parseColumn fills a column from the begin of b and returns the rest.
func parseColumn(b []byte, column []uint64) ([]byte, error) {
	if len(b) == 0 {
		return nil, corrupt("columns must not end early")
	}
	mode := b[0]
	b = b[1:]
	last := uint64(0)
	for i := 0; i < len(column); {
		if mode == allZero {
			column[i] = 0
			i++
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, corrupt("value %d of a column must be a varint", i)
		}
		b = b[n:]
		switch mode {
		case values:
			column[i] = v
			i++
		case deltas:
			last += unzigzag(v)
			column[i] = last
			i++
		case runs:
			run, n := binary.Uvarint(b)
			if n <= 0 || run == 0 || run > uint64(len(column)-i) {
				return nil, corrupt("run (%d) must be 1 to %d", run, len(column)-i)
			}
			b = b[n:]
			for range run {
				last += unzigzag(v)
				column[i] = last
				i++
			}
		default:
			return nil, corrupt("column's storage (%d) must be below %d", mode, numModes)
		}
	}
	return b, nil
}

// cell returns what a column holds of a request.
func cell(r *Request, column int, index int64) uint64 {
	switch column {
	case columnID:
		return r.ID
	case columnWhat:
		return uint64(r.Op) | uint64(r.Outcome)<<2
	case columnBytes:
		return uint64(r.Size)
	case columnWhen:
		return uint64(r.Time)
	}
	switch r.Next {
	case Unknown:
		return 0
	case Never:
		return 1
	}
	return uint64(r.Next-index) + 1
}

// setCell is the inverse of cell.
func setCell(r *Request, column int, index int64, v uint64) error {
	switch column {
	case columnID:
		r.ID = v
	case columnWhat:
		r.Op, r.Outcome = Op(v&3), Outcome(v>>2)
		if v>>2 >= uint64(numOutcomes) || r.Op >= numOps {
			return corrupt("operation and outcome (%d) must be known", v)
		}
	case columnBytes:
		if r.Size = int64(v); r.Size < 0 {
			return corrupt("size (%d) must be below 2^63", v)
		}
	case columnWhen:
		r.Time = int64(v)
	case columnNextUse:
		switch {
		case v == 0:
			r.Next = Unknown
		case v == 1:
			r.Next = Never
		case v-1 > uint64(math.MaxInt64-index):
			return corrupt("distance to the next access (%d) must end below 2^63", v-1)
		default:
			r.Next = index + int64(v-1)
		}
	}
	return nil
}
