package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// maxLine bounds the length of a line of a row-number file, its newline included.
const maxLine = 1 << 16

// ReadIDs reads a text file of one row number per line, for a table of that many
// rows. A row number is decimal digits; spaces and tabs around it, blank lines,
// lines that start with #, CRLF line ends and a leading byte order mark are
// ignored. The error names the first faulty line and counts all of them; a file
// without row numbers is an error.
func ReadIDs(path string, rows int) ([]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	defer f.Close()
	return parseIDs(f, path, rows)
}

// parseIDs is ReadIDs on an open file called name.
func parseIDs(r io.Reader, name string, rows int) ([]int64, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var ids []int64
	var first error // fault of the first bad line
	line, bad, good := 0, 0, 0
	for lines.Scan() {
		line++
		text := lines.Bytes()
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		text = bytes.Trim(text, " \t\r")
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		id, err := parseRow(text, rows)
		if err != nil {
			if bad++; bad == 1 {
				first = fmt.Errorf("workload: %s:%d: %w", name, line, err)
			}
			continue
		}
		good++
		if bad == 0 {
			ids = append(ids, id)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("workload: %s:%d: line must be shorter than %d bytes", name, line+1, maxLine)
	case err != nil:
		return nil, fmt.Errorf("workload: %w", err)
	case bad > 0:
		return nil, fmt.Errorf("%w; bad lines in all: %d of %d", first, bad, bad+good)
	case good == 0:
		return nil, fmt.Errorf("workload: %s: row numbers (0) must be at least 1", name)
	}
	return ids, nil
}

// parseRow reads one row number of a table of that many rows.
func parseRow(text []byte, rows int) (int64, error) {
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	var id int64
	numeric := len(digits) > 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			numeric = false
			break
		}
		if id > (math.MaxInt64-9)/10 {
			id = math.MaxInt64 // stays there: beyond any table
			continue
		}
		id = id*10 + int64(c-'0')
	}
	switch {
	case !numeric:
		return 0, fmt.Errorf("row number (%q) must be decimal digits", shorten(text))
	case negative:
		return 0, fmt.Errorf("row number (%s) must not be negative", shorten(text))
	case id >= int64(rows):
		return 0, fmt.Errorf("row number (%s) must be below %d, the rows of the table", shorten(text), rows)
	}
	return id, nil
}

// shorten keeps error texts readable.
func shorten(text []byte) string {
	const limit = 40
	if len(text) > limit {
		return string(text[:limit]) + "…"
	}
	return string(text)
}

// Replay is the access pattern of a list of row numbers, cut into batches.
type Replay[T int64 | uint32] struct {
	ids       []T
	batchSize int
}

// NewReplay cuts ids into batches of batchSize; the last may be shorter. It
// keeps ids, which must not change afterwards.
func NewReplay[T int64 | uint32](ids []T, batchSize int) (*Replay[T], error) {
	if len(ids) == 0 {
		return nil, errors.New("workload: replay: row numbers (0) must be at least 1")
	}
	if batchSize < 1 {
		return nil, fmt.Errorf("workload: replay: batch size (%d) must be at least 1", batchSize)
	}
	return &Replay[T]{ids: ids, batchSize: batchSize}, nil
}

// Kind returns "ids".
func (w *Replay[T]) Kind() string { return "ids" }

// Batches is the number of batches.
func (w *Replay[T]) Batches() int { return (len(w.ids)-1)/w.batchSize + 1 }

// NewCursor returns w, which needs no scratch.
func (w *Replay[T]) NewCursor() Cursor { return w }

// Batch implements Cursor.
func (w *Replay[T]) Batch(i int, dst []int64) []int64 {
	checkBatch(i, w.Batches())
	lo := i * w.batchSize
	for _, id := range w.ids[lo : lo+min(w.batchSize, len(w.ids)-lo)] {
		dst = append(dst, int64(id))
	}
	return dst
}
