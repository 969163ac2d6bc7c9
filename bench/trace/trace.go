// Package trace reads recorded accesses.
package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Op is what a request does.
type Op uint8

// Operations.
const (
	Get Op = iota
	Set
	Delete
)

// Request is one access.
type Request struct {
	ID               uint64
	Size, Next, Time int64
	Op               Op
}

// Unknown is Next where the format has none.
const Unknown = -2

// Options say how a trace is read.
type Options struct{ Format string }

// Reader reads requests; io.EOF ends them.
type Reader interface {
	Read(dst []Request) (int, error)
	Close() error
}

type reader struct {
	f    *os.File
	next func() (Request, error)
}

func (r *reader) Close() error { return r.f.Close() }
func (r *reader) Read(dst []Request) (n int, err error) {
	for n < len(dst) {
		q, err := r.next()
		if err != nil {
			return n, err
		}
		dst[n] = q
		n++
	}
	return n, nil
}

// Open opens a trace.
func Open(path string, o Options) (Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("trace: %s: %w", path, err)
		}
	}
	b := bufio.NewReaderSize(in, 1<<20)
	r := &reader{f: f}
	var queue []Request
	lines := bufio.NewScanner(b)
	lines.Buffer(nil, 1<<24)
	byLine := func(parse func(line string) error) func() (Request, error) {
		return func() (Request, error) {
			for len(queue) == 0 {
				if !lines.Scan() {
					if lines.Err() != nil {
						return Request{}, lines.Err()
					}
					return Request{}, io.EOF
				}
				if err := parse(lines.Text()); err != nil {
					return Request{}, fmt.Errorf("trace: %s: %w", path, err)
				}
			}
			q := queue[0]
			queue = queue[1:]
			return q, nil
		}
	}
	switch {
	case strings.Contains(path, "oracleGeneral"):
		r.next = func() (Request, error) {
			var rec [24]byte
			if _, err := io.ReadFull(b, rec[:]); err != nil {
				if err == io.ErrUnexpectedEOF {
					err = fmt.Errorf("trace: %s: truncated", path)
				}
				return Request{}, err
			}
			return Request{
				Time: int64(binary.LittleEndian.Uint32(rec[:])), ID: binary.LittleEndian.Uint64(rec[4:]),
				Size: int64(binary.LittleEndian.Uint32(rec[12:])), Next: int64(binary.LittleEndian.Uint64(rec[16:])),
			}, nil
		}
	case strings.Contains(path, "jsonl"):
		r.next = byLine(func(line string) error {
			var v struct {
				HashIDs []uint64 `json:"hash_ids"`
			}
			if err := json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&v); err != nil {
				return err
			}
			for _, id := range v.HashIDs {
				queue = append(queue, Request{ID: id, Next: Unknown})
			}
			return nil
		})
	case strings.Contains(path, "arc"):
		r.next = byLine(func(line string) error {
			var start, count uint64
			if _, err := fmt.Sscan(line, &start, &count); err != nil {
				return err
			}
			for i := range count {
				queue = append(queue, Request{ID: start + i, Next: Unknown})
			}
			return nil
		})
	case strings.HasSuffix(path, ".csv"): // ID,size,op
		r.next = byLine(func(line string) error {
			f := strings.Split(line, ",")
			id, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil {
				return err
			}
			size, err := strconv.ParseInt(f[1], 10, 64)
			op := map[string]Op{"get": Get, "set": Set, "del": Delete}[f[2]]
			queue = append(queue, Request{ID: id, Size: size, Op: op, Next: Unknown})
			return err
		})
	default:
		r.next = byLine(func(line string) error {
			if line = strings.TrimSpace(line); line == "" || line == "*" {
				return nil
			}
			id, err := strconv.ParseUint(line, 10, 64)
			queue = append(queue, Request{ID: id, Next: Unknown})
			return err
		})
	}
	return r, nil
}
