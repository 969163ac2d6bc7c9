package workload

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/npy"
)

// edgeEndings are those of names of edge lists, without that of a compressed file.
var edgeEndings = []string{".el", ".wel", ".edges", ".edgelist", ".txt", ".tsv", ".csv"}

// LoadGraph reads a graph from the arrays "indptr" and "indices" of an .npz
// file, of any integer dtype, or from an edge list (see LoadEdges), which a pipe must be, and
// validates it. Errors name the file. force is LoadEdges's.
func LoadGraph(path string, force bool) (*Graph, error) {
	listed, err := isEdgeList(path)
	if err != nil {
		return nil, err
	}
	if listed {
		return LoadEdges(path, force)
	}
	indptr, err := readInts(path, "indptr")
	if err != nil {
		return nil, err
	}
	indices, err := readInts(path, "indices")
	if err != nil {
		return nil, err
	}
	err = checkIndptr(indptr, len(indices))
	if err == nil {
		err = checkIndices(indices, len(indptr)-1)
	}
	if err != nil {
		return nil, fmt.Errorf("workload: graph %s: %w", path, err)
	}
	g := &Graph{Indptr: indptr, Indices: make([]int32, len(indices))}
	for i, v := range indices {
		g.Indices[i] = int32(v)
	}
	return g, nil
}

// isEdgeList reports whether a graph's file is an edge list. If not, it is an .npz file, or an error.
func isEdgeList(path string) (bool, error) {
	name := strings.ToLower(path)
	for _, packed := range []string{".gz", ".zst"} {
		name = strings.TrimSuffix(name, packed)
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return false, fmt.Errorf("workload: graph %s: path (a directory) must be a file", path)
	}
	if slices.Contains(edgeEndings, filepath.Ext(name)) || err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return true, nil
	}
	if ext := filepath.Ext(path); !strings.EqualFold(ext, ".npz") {
		return false, fmt.Errorf("workload: graph %s: file type (%q) must be .npz, with arrays indptr and indices, or of an edge list: %s", path, ext, strings.Join(edgeEndings, ", "))
	}
	return false, nil
}

// VisitTargets reads a graph as LoadGraph does, and passes on which vertices its edges point to, in parts. Of an .npz file it holds no more than a part in memory. begin is
// called once before, with the number of vertices, and whether the graph is an edge list, so that vertices behind the last one that has an edge are missing; its
// error is returned as it is. A fault of the file may be found after parts have been passed on.
func VisitTargets(path string, force bool, begin func(vertices int, listed bool) error, visit func(targets []int64)) error {
	listed, err := isEdgeList(path)
	if err != nil {
		return err
	}
	if listed {
		g, err := LoadEdges(path, force)
		if err == nil {
			err = begin(g.Vertices(), g.Listed)
		}
		if err != nil {
			return err
		}
		for part := range slices.Chunk(g.Indices, 1<<14) {
			wide := make([]int64, len(part))
			for i, v := range part {
				wide[i] = int64(v)
			}
			visit(wide)
		}
		return nil
	}
	var check indptrCheck
	vertices, err := readArray(path, "indptr", func(r *npy.Reader) (int, error) {
		return r.Rows() - 1, r.VisitInts(check.add)
	})
	if err != nil {
		return err
	}
	if err := checkVertices(check.n); err != nil {
		return fmt.Errorf("workload: graph %s: %w", path, err)
	}
	if err := begin(vertices, false); err != nil {
		return err
	}
	edges := 0
	_, err = readArray(path, "indices", func(r *npy.Reader) (struct{}, error) {
		return struct{}{}, r.VisitInts(func(part []int64) error {
			if err := checkIndicesFrom(edges, part, vertices); err != nil {
				return err
			}
			edges += len(part)
			visit(part)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if err := check.end(edges); err != nil {
		return fmt.Errorf("workload: graph %s: %w", path, err)
	}
	return nil
}

// LoadWeights reads the edges' weights from the array "weights" of an .npz file, float32 or float64.
func (g *Graph) LoadWeights(path string) error {
	weights, err := readFloats(path, "weights")
	if err != nil {
		return err
	}
	if err := checkWeights(weights, len(g.Indices)); err != nil {
		return fmt.Errorf("workload: graph %s: %w", path, err)
	}
	g.Weights = weights
	return nil
}

// readFloats reads one rank-1 array of float32 or float64 of an .npz file.
func readFloats(path, array string) ([]float32, error) {
	return readArray(path, array, func(r *npy.Reader) ([]float32, error) {
		if t := r.DType(); len(r.Shape()) != 1 || t != dtype.Float32 && t != dtype.Float64 {
			return nil, fmt.Errorf("array of rank %d and %v must be of rank 1 and float32 or float64", len(r.Shape()), t)
		}
		b := make([]byte, r.Rows()*r.RowBytes())
		if _, err := r.Read(b); err != nil {
			return nil, err
		}
		values := make([]float32, r.Rows())
		if r.DType() == dtype.Float32 {
			_, err := binary.Decode(b, binary.LittleEndian, values)
			return values, err
		}
		for i := range values {
			values[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		}
		return values, nil
	})
}

// readInts reads one rank-1 integer array of an .npz file.
func readInts(path, array string) ([]int64, error) {
	return readArray(path, array, (*npy.Reader).ReadInts)
}

// readArray reads an array of a graph's file; errors name both.
func readArray[T any](path, array string, read func(*npy.Reader) (T, error)) (v T, err error) {
	r, err := npy.Open(path+":"+array, 1)
	if err == nil {
		defer r.Close()
		v, err = read(r)
	}
	if err != nil {
		err = fmt.Errorf("workload: graph %s: array %s: %w", path, array, err)
	}
	return v, err
}
