package trace

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// Columns of CacheLib's CSV, in the order that a file without a header has.
const (
	columnKey = iota
	columnOp
	columnSize
	columnCount
	columnKeySize
	columnTTL
	columnTime
	numColumns
)

var cacheLibColumns = [numColumns]string{"key", "op", "size", "op_count", "key_size", "ttl", "op_time"}

// cacheLibOps are those that CacheLib replays.
var cacheLibOps = map[string]Op{"GET": Get, "GET_LEASE": Get, "SET": Set, "SET_LEASE": Set, "DELETE": Delete}

// cacheLibDecoder reads the CSV that CacheLib's cachebench replays: op_count equal requests a line. Size is that of the
// value. A key in decimal digits is its own ID, any other is hashed.
type cacheLibDecoder struct {
	runDecoder
	header  bool
	columns [numColumns]int // where each is, -1 if it is not
	least   int             // fields of a line: those of the header, if there is one
	fields  [][]byte
}

func newCacheLibDecoder(s *source) decoder {
	d := &cacheLibDecoder{runDecoder: runDecoder{lines: lines{s: s, limit: maxLine}, comments: "#"}}
	d.parse = d.line
	for i := range d.columns {
		d.columns[i] = i
	}
	d.columns[columnTime] = -1
	return d
}

// cacheLibHeader returns where the columns are.
func cacheLibHeader(names [][]byte) (columns [numColumns]int, err error) {
	for i := range columns {
		columns[i] = -1
	}
	for i, name := range names {
		for c, known := range cacheLibColumns {
			if strings.EqualFold(strings.TrimSpace(string(name)), known) {
				if columns[c] >= 0 {
					return columns, corrupt("column %s must occur once", known)
				}
				columns[c] = i
			}
		}
	}
	for _, c := range []int{columnKey, columnOp, columnSize} {
		if columns[c] < 0 {
			return columns, corrupt("header must name the columns key, op and size")
		}
	}
	return columns, nil
}

func (d *cacheLibDecoder) line(line []byte) (r Request, count uint64, err error) {
	d.fields = d.fields[:0]
	for field := range bytes.SplitSeq(line, []byte{','}) {
		d.fields = append(d.fields, bytes.TrimSpace(field))
	}
	if !d.header {
		d.header = true
		if columns, err := cacheLibHeader(d.fields); err == nil {
			d.columns, d.least = columns, len(d.fields)
			return r, 0, nil
		}
	}
	if len(d.fields) < d.least {
		return r, 0, d.fault("line (%d fields) must have the header's %d", len(d.fields), d.least)
	}
	key := d.field(columnKey)
	if len(key) == 0 {
		return r, 0, d.fault("key must not be empty")
	}
	r = Request{ID: keyID(key), Next: Unknown}
	name := d.field(columnOp)
	var ok bool
	if r.Op, ok = cacheLibOps[strings.ToUpper(string(name))]; !ok {
		return r, 0, d.fault("op (%s) must be GET, GET_LEASE, SET, SET_LEASE or DELETE", shorten(name))
	}
	// Without a value, an operation counts once, and its time is 0.
	values := [numColumns]uint64{columnCount: 1}
	for _, n := range []struct {
		column       int
		least, limit uint64
	}{{columnSize, 0, math.MaxInt64}, {columnCount, 1, math.MaxUint32}, {columnTime, 0, math.MaxInt64}} {
		field := d.field(n.column)
		if len(field) == 0 && n.column != columnSize {
			continue
		}
		v, err := parseUint(field)
		if err != nil || v < n.least || v > n.limit {
			return r, 0, d.fault("%s (%s) must be %d to %d", cacheLibColumns[n.column], shorten(field), n.least, n.limit)
		}
		values[n.column] = v
	}
	r.Size, r.Time = int64(values[columnSize]), int64(values[columnTime])
	return r, values[columnCount], nil
}

// field returns a column of the line, nil if there is none.
func (d *cacheLibDecoder) field(column int) []byte {
	if at := d.columns[column]; at >= 0 && at < len(d.fields) {
		return d.fields[at]
	}
	return nil
}

// keyID returns the ID of a key: the number it is, or its FNV-1a hash.
func keyID(key []byte) uint64 {
	if len(key) == 1 || key[0] != '0' { // 07 is not 7
		if id, err := parseUint(key); err == nil {
			return id
		}
	}
	h := fnv.New64a()
	h.Write(key)
	return h.Sum64()
}

// newCacheLibEncoder writes equal requests in a row as one line.
func newCacheLibEncoder(w *Writer) (encoder, error) {
	e := &runEncoder{w: w, most: math.MaxUint16} // CacheLib itself counts to 2^16 - 1
	e.joins = func(r *Request) (bool, error) {
		if r.Time < 0 {
			return false, fmt.Errorf("%w: time (%d) must not be negative in cachelib", ErrFormat, r.Time)
		}
		r.Next, r.Outcome = 0, 0
		return *r == e.request, nil
	}
	e.appendLine = func(text []byte) []byte {
		r := &e.request
		return fmt.Appendf(text, "%d,%s,%d,%d,8,%d\n", r.ID, strings.ToUpper(r.Op.String()), r.Size, e.count, r.Time)
	}
	_, err := w.w.Write([]byte("key,op,size,op_count,key_size,op_time\n"))
	return e, err
}
