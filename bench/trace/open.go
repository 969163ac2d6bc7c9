package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/internal/packed"
)

// Options say how a trace is opened or made.
type Options struct {
	// Format is one of Formats. Default: what the content or the name says.
	Format string
	// Params say which columns of a csv file have what: parameters of libCacheSim, such as "obj-id-col=2, obj-size-col=3". With them, the format is csv.
	Params string
	// Default is the format to read where neither of them says. Default: that is an error.
	Default string
}

// format is how one format is read and written.
type format struct {
	name    string
	decode  func(*source) decoder
	encode  func(*Writer) (encoder, error) // nil: it cannot be written
	endings []string                       // of names, lower case
	// keeps says what the format holds besides IDs.
	keeps Keeps
}

// Keeps says what a format holds besides IDs.
type Keeps struct{ Sizes, Times, Ops, Next, Outcomes bool }

// formats are ordered as errors list them.
var formats = []format{
	{"tct", newBlockDecoder, newBlockEncoder, []string{".tct"}, Keeps{true, true, true, true, true}},
	{"oraclegeneral", newOracleDecoder, newOracleEncoder, []string{".oraclegeneral", ".oraclegeneral.bin"}, Keeps{Sizes: true, Times: true, Next: true}},
	{"cachelib", newCacheLibDecoder, newCacheLibEncoder, []string{".csv"}, Keeps{Sizes: true, Times: true, Ops: true}},
	{"arc", newARCDecoder, newARCEncoder, []string{".arc", ".lis"}, Keeps{}},
	{"lirs", newIDsDecoder, newIDsEncoder, []string{".lirs", ".trc"}, Keeps{}},
	{"ids", newIDsDecoder, newIDsEncoder, []string{".ids", ".txt"}, Keeps{}},
	{"mooncake", newMooncakeDecoder, nil, []string{".jsonl"}, Keeps{Times: true}},
	{"lcs", newLCSDecoder, nil, []string{".lcs"}, Keeps{Sizes: true, Times: true, Next: true}},
	{"csv", nil, nil, nil, Keeps{Sizes: true, Times: true}}, // by Options.Params
}

// Formats returns the names of the formats.
func Formats() []string {
	var names []string
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// lookup returns the format of that name.
func lookup(name string) (*format, error) {
	for i := range formats {
		if strings.EqualFold(formats[i].name, name) {
			return &formats[i], nil
		}
	}
	return nil, fmt.Errorf("trace: %w: format (%q) must be one of %s", ErrFormat, name, strings.Join(Formats(), ", "))
}

// byName returns the format that a path's ending stands for, nil if none.
func byName(path string) *format {
	name := strings.ToLower(filepath.Base(path))
	for _, packed := range []string{".gz", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, packed)
	}
	for i := range formats {
		if slices.ContainsFunc(formats[i].endings, func(e string) bool { return strings.HasSuffix(name, e) }) {
			return &formats[i]
		}
	}
	if strings.Contains(name, "oraclegeneral") {
		return &formats[1]
	}
	return nil
}

// decoder reads one format. It returns requests and an error, which may come together; never neither.
type decoder interface {
	decode(dst []Request) (int, error)
}

// StandardInput is the path that stands for the standard input.
const StandardInput = "-"

// Open opens a trace.
func Open(path string, o Options) (Reader, error) {
	f, err := os.Stdin, o.validateParams()
	if err == nil && path != StandardInput {
		if f, err = os.Open(path); err != nil {
			err = fmt.Errorf("trace: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	if path == StandardInput {
		path = "standard input"
	}
	s, err := newSource(path, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r, err := newReader(s, o)
	if err != nil {
		s.close()
		return nil, err
	}
	return r, nil
}

// newReader reads a trace of the format asked for, or of what it seems to be.
func newReader(s *source, o Options) (r *reader, err error) {
	r = &reader{source: s}
	if strings.EqualFold(o.Format, "csv") || o.Params != "" {
		if r.format, err = lookup("csv"); err == nil {
			var columns csvColumns
			columns, err = parseCSVColumns(o.Params)
			r.decoder = newCSVDecoder(s, columns)
		}
		return r, err
	}
	if o.Format != "" {
		r.format, err = lookup(o.Format)
	} else if r.format, err = detect(s); errors.Is(err, errUndetected) && o.Default != "" {
		r.format, err = lookup(o.Default)
	}
	if err == nil {
		r.decoder = r.format.decode(s)
	}
	return r, err
}

// reader is an open trace.
type reader struct {
	source  *source
	format  *format
	decoder decoder
	err     error
}

// Read implements Reader.
func (r *reader) Read(dst []Request) (int, error) {
	if r.err != nil || len(dst) == 0 {
		return 0, r.err
	}
	n, err := r.decoder.decode(dst)
	r.err = err
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// Close implements Reader.
func (r *reader) Close() error {
	if r.err == nil {
		r.err = errors.New("trace: " + r.source.name + ": read after Close")
	}
	return r.source.close()
}

var errUndetected = fmt.Errorf("%w: neither the content nor the name is of a known format", ErrFormat)

// detect tells the format from the first bytes, or else from the name.
func detect(s *source) (*format, error) {
	head, err := s.r.Peek(packed.BufferBytes)
	switch {
	case len(head) == 0 && err == io.EOF:
		return nil, s.fault(0, 0, truncated("file (0 bytes) must not be empty"))
	case len(head) == 0 && err != nil:
		return nil, s.fault(0, 0, err)
	}
	name := ""
	if bytes.HasPrefix(head, []byte(blockMagic)) {
		name = "tct"
	} else if bytes.HasPrefix(head, []byte(lcsMagic)) {
		name = "lcs"
	} else if line := firstLine(head); line != nil {
		name = detectText(line)
	}
	named := byName(s.name)
	if name == "" && named != nil {
		return named, nil
	}
	if name == "ids" && named != nil && named.name == "lirs" {
		return named, nil
	}
	if name == "" {
		return nil, fmt.Errorf("trace: %s: %w: %s", s.name, errUndetected, strings.Join(Formats(), ", "))
	}
	return lookup(name)
}

// firstLine returns the first line that says something, nil if this is not text.
func firstLine(head []byte) []byte {
	head = bytes.TrimPrefix(head, []byte(byteOrderMark))
	for _, c := range head[:min(len(head), 4096)] {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return nil
		}
	}
	for line := range bytes.Lines(head) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '*' {
			return line
		}
	}
	return nil
}

// detectText returns the format of a text whose first line this is, "" if it is none.
func detectText(line []byte) string {
	if line[0] == '{' {
		return "mooncake"
	}
	if columns := bytes.Split(line, []byte{','}); len(columns) > 2 {
		if _, err := cacheLibHeader(columns); err == nil {
			return "cachelib"
		}
		if _, ok := cacheLibOps[strings.ToUpper(string(columns[1]))]; ok {
			return "cachelib"
		}
		return ""
	}
	fields := bytes.Fields(line)
	for _, f := range fields {
		if _, err := parseUint(f); err != nil {
			return ""
		}
	}
	switch len(fields) {
	case 1:
		return "ids"
	case 4:
		return "arc"
	}
	return ""
}
