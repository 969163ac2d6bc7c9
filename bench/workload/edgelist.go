package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/tensorcache/tensorcache/internal/memlimit"
	"github.com/tensorcache/tensorcache/internal/packed"
)

const (
	// maxLine bounds the length of a line of an edge list, its newline included.
	maxLine = 1 << 16
	// sparsest is how many vertices an edge list may have for each edge: row numbers are dense, and gaps cost memory.
	sparsest = 64
)

// LoadEdges reads a graph from a text file with an edge a line: source, target, and perhaps a weight, between spaces, tabs
// or commas. Vertices are numbered from 0. Blank lines and what begins with # or % are ignored. Where the first edge has a
// weight, all must. The file may be a pipe, gzip or zstd. While it is read, an edge takes 12 bytes of memory, or 20 with a
// weight; in the graph, 4 or 8. Unless force is set, LoadEdges ends once this process may not take the memory that is left to need.
func LoadEdges(path string, force bool) (*Graph, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	defer file.Close()
	in, free, err := packed.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("workload: graph %s: %w", path, err)
	}
	defer free()
	if head, _ := in.Peek(4); string(head) == "PK\x03\x04" {
		return nil, fmt.Errorf("workload: graph %s: content (an .npz archive) must be an edge list: only a file named .npz is read as one", path)
	}
	check := func(bytes float64) error {
		if force {
			return nil
		}
		return memlimit.Check(memlimit.Need{Setting: "--graph", Value: path, Bytes: bytes})
	}
	var edges edgeList
	next := 1 << 20 // edges: each time that they have doubled, is there memory for as many again?
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	line := 1
	for ; lines.Scan(); line++ {
		if err := edges.add(bytes.TrimPrefix(lines.Bytes(), []byte("\xef\xbb\xbf"))); err != nil {
			return nil, fmt.Errorf("workload: graph %s:%d: %w", path, line, err)
		}
		if n := len(edges.from); n == next {
			next *= 2
			if err := check(float64(n) * edges.growBytes()); err != nil {
				return nil, err
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("workload: graph %s:%d: line must be shorter than %d bytes", path, line, maxLine)
	} else if err != nil {
		return nil, fmt.Errorf("workload: graph %s: after line %d: %w", path, line-1, err)
	}
	n := len(edges.from)
	if limit := max(1<<24, sparsest*n); edges.vertices > limit {
		return nil, fmt.Errorf("workload: graph %s: vertices (%d) must be at most %d for %d edges: renumber them", path, edges.vertices, limit, n)
	}
	if n == 0 {
		return nil, fmt.Errorf("workload: graph %s: edges (0) must be at least 1", path)
	}
	if err := check(float64(edges.vertices)*2*8 + float64(n)*8); err != nil {
		return nil, err
	}
	return edges.graph(), nil
}

// edgeList is the edges in the order of the file.
type edgeList struct {
	from, to []int32
	weights  []float32 // none, or one for each edge
	vertices int
}

// growBytes is about what one more edge takes while slices grow: each by a quarter, beside the one that it was copied from.
func (l *edgeList) growBytes() float64 {
	if l.weights != nil {
		return 36
	}
	return 24
}

// add appends the edge of a line, if there is one.
func (l *edgeList) add(line []byte) error {
	fields := bytes.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == ',' })
	if len(fields) == 0 || fields[0][0] == '#' || fields[0][0] == '%' {
		return nil
	}
	if len(fields) < 2 || len(fields) > 3 {
		return fmt.Errorf("fields (%d) must be source, target and perhaps a weight", len(fields))
	}
	if len(l.from) > 0 && (len(fields) == 3) != (l.weights != nil) {
		return errors.New("weights must be on all edges or none")
	}
	var ends [2]int32
	for i := range ends {
		v, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil || v >= math.MaxInt32 {
			return fmt.Errorf("vertex (%s) must be 0 to %d in decimal digits", shorten(fields[i]), math.MaxInt32-1)
		}
		ends[i] = int32(v)
		l.vertices = max(l.vertices, int(v)+1)
	}
	l.from, l.to = append(l.from, ends[0]), append(l.to, ends[1])
	if len(fields) == 3 {
		w, err := strconv.ParseFloat(string(fields[2]), 32)
		if err != nil || !(w >= 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("weight (%s) must be finite and not negative", shorten(fields[2]))
		}
		l.weights = append(l.weights, float32(w))
	}
	return nil
}

// graph sorts the edges by their sources.
func (l *edgeList) graph() *Graph {
	g := &Graph{Indptr: make([]int64, l.vertices+1), Indices: make([]int32, len(l.to)), Listed: true}
	if l.weights != nil {
		g.Weights = make([]float32, len(l.to))
	}
	for _, v := range l.from {
		g.Indptr[v+1]++
	}
	for v := range l.vertices {
		g.Indptr[v+1] += g.Indptr[v]
	}
	next := append([]int64(nil), g.Indptr...) // place of a vertex's next edge
	for i, v := range l.from {
		at := next[v]
		next[v]++
		if g.Indices[at] = l.to[i]; l.weights != nil {
			g.Weights[at] = l.weights[i]
		}
	}
	return g
}

// shorten quotes text in an error, its beginning if it is long.
func shorten(text []byte) string {
	const limit = 40
	if len(text) > limit {
		return fmt.Sprintf("%q…", text[:limit])
	}
	return fmt.Sprintf("%q", text)
}
