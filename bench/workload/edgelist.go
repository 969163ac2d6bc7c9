package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// sparsest is how many vertices an edge list may have for each edge: row numbers are dense, and gaps cost memory.
const sparsest = 64

// LoadEdges reads a graph from a text file with an edge a line: source, target, and perhaps a weight, between spaces, tabs
// or commas. Vertices are numbered from 0. Blank lines and what begins with # or % are ignored. Where the first edge has a
// weight, all must. The file may be gzip or zstd. It is read twice, so that only the graph itself takes memory.
func LoadEdges(path string) (*Graph, error) {
	var degrees []int64
	edges, weighted, vertices := int64(0), false, int64(0)
	err := scanEdges(path, func(from, to int64, weight float32, has bool) error {
		if edges == 0 {
			weighted = has
		}
		if has != weighted {
			return errors.New("weights must be on all edges or none")
		}
		edges++
		vertices = max(vertices, from+1, to+1)
		if limit := max(1<<24, sparsest*(edges+1<<20)); from >= limit {
			return fmt.Errorf("vertex (%d) must be below %d, for as many edges as there are so far: renumber them", from, limit)
		}
		for int64(len(degrees)) <= from {
			degrees = append(degrees, 0)
		}
		degrees[from]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if limit := max(1<<24, sparsest*edges); vertices > limit {
		return nil, fmt.Errorf("workload: graph %s: vertices (%d) must be at most %d for %d edges: renumber them", path, vertices, limit, edges)
	}
	if edges == 0 {
		return nil, fmt.Errorf("workload: graph %s: edges (0) must be at least 1", path)
	}
	g := &Graph{Indptr: make([]int64, vertices+1), Indices: make([]int32, edges)}
	if weighted {
		g.Weights = make([]float32, edges)
	}
	for v := range vertices {
		d := int64(0)
		if v < int64(len(degrees)) {
			d = degrees[v]
			degrees[v] = g.Indptr[v] // from here on, the place of the next edge
		}
		g.Indptr[v+1] = g.Indptr[v] + d
	}
	err = scanEdges(path, func(from, to int64, weight float32, has bool) error {
		if from >= int64(len(degrees)) || to >= vertices || degrees[from] >= g.Indptr[from+1] || has != weighted {
			return errors.New("file must not change while it is read")
		}
		at := degrees[from]
		degrees[from]++
		if g.Indices[at] = int32(to); weighted {
			g.Weights[at] = weight
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// scanEdges calls f for each edge of a file.
func scanEdges(path string, f func(from, to int64, weight float32, has bool) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	defer file.Close()
	buffered := bufio.NewReaderSize(file, 1<<20)
	var in io.Reader = buffered
	switch head, _ := buffered.Peek(4); {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("workload: graph %s: %w", path, err)
		}
		defer z.Close()
		in = z
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return fmt.Errorf("workload: graph %s: %w", path, err)
		}
		defer z.Close()
		in = z
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, maxLine), maxLine)
	line := 0
	for lines.Scan() {
		line++
		text := lines.Bytes()
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if err := parseEdge(text, f); err != nil {
			return fmt.Errorf("workload: graph %s:%d: %w", path, line, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("workload: graph %s:%d: line must be shorter than %d bytes", path, line+1, maxLine)
	} else if err != nil {
		return fmt.Errorf("workload: graph %s: after line %d: %w", path, line, err)
	}
	return nil
}

// parseEdge calls f for the edge of a line, if there is one.
func parseEdge(text []byte, f func(from, to int64, weight float32, has bool) error) error {
	var fields [4][]byte
	n := 0
	for n < len(fields) {
		text = bytes.TrimLeft(text, " \t\r,")
		if len(text) == 0 {
			break
		}
		end := bytes.IndexAny(text, " \t\r,")
		if end < 0 {
			end = len(text)
		}
		fields[n], text = text[:end], text[end:]
		n++
	}
	if n == 0 || fields[0][0] == '#' || fields[0][0] == '%' {
		return nil
	}
	if n < 2 || n > 3 {
		return fmt.Errorf("fields (%d) must be source, target and perhaps a weight", n)
	}
	var ends [2]int64
	for i := range ends {
		var err error
		if ends[i], err = parseRow(fields[i], math.MaxInt32); err != nil {
			return fmt.Errorf("vertex: %w", err)
		}
	}
	if n == 2 {
		return f(ends[0], ends[1], 0, false)
	}
	w, err := strconv.ParseFloat(string(fields[2]), 32)
	if err != nil || !(w >= 0 && w <= math.MaxFloat32) {
		return fmt.Errorf("weight (%s) must be finite and not negative", shorten(fields[2]))
	}
	return f(ends[0], ends[1], float32(w), true)
}
