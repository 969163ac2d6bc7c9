package trace

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// csvColumns say what is where in libCacheSim's CSV. Columns count from 1; 0: the file has none.
type csvColumns struct {
	id, size, time int
	delimiter      byte // 0: the one that the first line has most of
	header         string
	numericIDs     bool
}

// parseCSVColumns reads what libCacheSim's option --trace-type-params says: "time-col=2, obj-id-col=5, obj-size-col=4, delimiter=;, has-header=true".
func parseCSVColumns(text string) (c csvColumns, err error) {
	f := faults.List{Prefix: "trace: "}
	for rest := strings.TrimSpace(text); rest != ""; {
		name, after, found := strings.Cut(rest, "=")
		var value string
		if value, rest, _ = strings.Cut(after, ","); value == "" && strings.HasPrefix(after, ",") { // delimiter=,,
			value, rest = ",", strings.TrimPrefix(rest, ",")
		}
		rest = strings.TrimLeft(rest, " ")
		name, value = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), "_", "-")), strings.Trim(value, " ")
		boolean := func() bool {
			yes, err := strconv.ParseBool(value)
			f.If(err != nil, "%s (%q) must be true or false", name, value)
			return yes
		}
		column := func() int {
			n, err := strconv.Atoi(value)
			f.If(err != nil || n < 1 || n > 1000, "%s (%q) must be a column from 1 to 1000", name, value)
			return n
		}
		switch {
		case !found:
			f.If(true, "trace parameter (%q) must be name=value", name)
		case name == "obj-id-col":
			c.id = column()
		case name == "obj-size-col" || name == "size-col":
			c.size = column()
		case name == "time-col":
			c.time = column()
		case name == "has-header" || name == "header":
			c.header = strconv.FormatBool(boolean())
		case name == "obj-id-is-num":
			c.numericIDs = boolean()
		case name == "delimiter":
			value = strings.ReplaceAll(value, `\t`, "\t")
			f.If(len(value) != 1, "delimiter (%q) must be one character", value)
			c.delimiter = (value + ",")[0]
		default:
			f.If(true, "trace parameter (%q) must be obj-id-col, obj-size-col, time-col, delimiter, has-header or obj-id-is-num", name)
		}
	}
	f.If(c.id == 0 && f.Err() == nil, "obj-id-col must say which column of the CSV file has the IDs")
	return c, f.Err()
}

// csvDecoder reads CSV whose columns have numbers, as libCacheSim does: every line is a get, unless it is the header. An ID that is no number is hashed.
type csvDecoder struct {
	runDecoder
	csvColumns
	begun bool
}

func newCSVDecoder(s *source, c csvColumns) decoder {
	d := &csvDecoder{runDecoder: runDecoder{lines: lines{s: s, limit: maxLine}}, csvColumns: c}
	d.parse = d.line
	return d
}

func (d *csvDecoder) line(line []byte) (r Request, count uint64, err error) {
	if !d.begun {
		d.begun = true
		if d.delimiter == 0 {
			d.delimiter = guessDelimiter(line)
		}
		if d.header == "true" || d.header == "" && looksLikeHeader(line) {
			return r, 0, nil
		}
	}
	fields, err := d.split(line)
	if err != nil {
		return r, 0, d.fault("line must be CSV: %v", err)
	}
	r.Next = Unknown
	if most := max(d.id, d.size, d.time); len(fields) < most {
		return r, 0, d.fault("line (%d fields, divided by %q) must have %d", len(fields), d.delimiter, most)
	}
	id := fields[d.id-1]
	if len(id) == 0 {
		return r, 0, d.fault("ID must not be empty")
	}
	if r.ID = keyID(id); d.numericIDs {
		if r.ID, err = strconv.ParseUint(string(id), 0, 64); err != nil {
			return r, 0, d.fault("ID (%s) must be 0 to 2^64 - 1", shorten(id))
		}
	}
	if d.size > 0 {
		size, err := parseUint(fields[d.size-1])
		if err != nil || size > math.MaxInt64 {
			return r, 0, d.fault("size (%s) must be 0 to 2^63 - 1 in decimal digits", shorten(fields[d.size-1]))
		}
		r.Size = int64(size)
	}
	if d.time > 0 {
		seconds, err := strconv.ParseFloat(string(fields[d.time-1]), 64)
		if err != nil || !(seconds >= 0 && seconds < 1<<62) {
			return r, 0, d.fault("time (%s) must be a number from 0 to 2^62", shorten(fields[d.time-1]))
		}
		r.Time = int64(seconds)
	}
	return r, 1, nil
}

// split returns the fields of a line. Quotes are rare, so only lines that have some are read with care.
func (d *csvDecoder) split(line []byte) (fields [][]byte, err error) {
	if bytes.IndexByte(line, '"') < 0 {
		for field := range bytes.SplitSeq(line, []byte{d.delimiter}) {
			fields = append(fields, bytes.TrimSpace(field))
		}
		return fields, nil
	}
	r := csv.NewReader(bytes.NewReader(line))
	r.Comma = rune(d.delimiter)
	texts, err := r.Read()
	for _, text := range texts {
		fields = append(fields, bytes.TrimSpace([]byte(text)))
	}
	return fields, err
}

// guessDelimiter returns the delimiter that a line has most of. Likelier ones count more, as in libCacheSim, which knows no semicolons.
func guessDelimiter(line []byte) byte {
	best, most := byte(','), 0
	for _, d := range []struct {
		delimiter byte
		weight    int
	}{{'\t', 8}, {',', 6}, {'|', 4}, {':', 2}, {';', 1}} {
		if n := bytes.Count(line, []byte{d.delimiter}) * d.weight; n > most {
			best, most = d.delimiter, n
		}
	}
	return best
}

// looksLikeHeader compares letters, but those that hexadecimal numbers have, with digits, as libCacheSim does.
func looksLikeHeader(line []byte) bool {
	digits, letters := 0, 0
	for _, c := range line {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			letters++
		}
	}
	return digits <= letters
}

// validateParams returns what is wrong with a format's parameters.
func (o *Options) validateParams() error {
	isCSV := strings.EqualFold(o.Format, "csv")
	if o.Format != "" && !isCSV && o.Params != "" {
		return fmt.Errorf("trace: %w: format %s takes no parameters (%q), csv does", ErrFormat, o.Format, o.Params)
	}
	if isCSV || o.Params != "" {
		_, err := parseCSVColumns(o.Params)
		return err
	}
	return nil
}
