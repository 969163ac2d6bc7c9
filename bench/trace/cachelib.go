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
	for len(line) > 0 {
		field, rest, found := bytes.Cut(line, []byte{','})
		d.fields = append(d.fields, bytes.TrimSpace(field))
		if line = rest; found && len(rest) == 0 {
			d.fields = append(d.fields, nil)
		}
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
	op, ok := cacheLibOps[string(name)]
	if !ok {
		op, ok = cacheLibOps[strings.ToUpper(string(name))]
	}
	if !ok {
		return r, 0, d.fault("op (%s) must be GET, GET_LEASE, SET, SET_LEASE or DELETE", shorten(name))
	}
	r.Op = op
	size, err := d.number(columnSize, math.MaxInt64, -1)
	if err != nil {
		return r, 0, err
	}
	count, err = d.number(columnCount, math.MaxUint32, 1)
	if err != nil {
		return r, 0, err
	}
	time, err := d.number(columnTime, math.MaxInt64, 0)
	if err != nil {
		return r, 0, err
	}
	if count == 0 {
		return r, 0, d.fault("op_count (0) must be at least 1")
	}
	r.Size, r.Time = int64(size), int64(time)
	return r, count, nil
}

// number returns a column's value; an empty one stands for missing, unless that is negative.
func (d *cacheLibDecoder) number(column int, limit uint64, missing int64) (uint64, error) {
	field := d.field(column)
	if len(field) == 0 && missing >= 0 {
		return uint64(missing), nil
	}
	v, err := parseUint(field)
	if err != nil || v > limit {
		return 0, d.fault("%s (%s) must be 0 to %d", cacheLibColumns[column], shorten(field), limit)
	}
	return v, nil
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
func newCacheLibEncoder(o *output) (encoder, error) {
	e := &runEncoder{o: o, most: math.MaxUint16} // CacheLib itself counts to 2^16 - 1
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
	_, err := o.w.Write([]byte("key,op,size,op_count,key_size,op_time\n"))
	return e, err
}
