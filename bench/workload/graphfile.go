package workload

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tensorcache/tensorcache/internal/npy"
)

// LoadGraph reads a graph from the arrays "indptr" and "indices" of an .npz
// file, of any integer dtype, and validates it. Errors name the file.
func LoadGraph(path string) (*Graph, error) {
	if ext := filepath.Ext(path); !strings.EqualFold(ext, ".npz") {
		return nil, fmt.Errorf("workload: graph %s: file type (%q) must be .npz, with arrays indptr and indices", path, ext)
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

// readInts reads one rank-1 integer array of an .npz file.
func readInts(path, array string) ([]int64, error) {
	r, err := npy.Open(path+":"+array, 1)
	if err != nil {
		return nil, fmt.Errorf("workload: graph %s: array %s: %w", path, array, err)
	}
	defer r.Close()
	v, err := r.ReadInts()
	if err != nil {
		return nil, fmt.Errorf("workload: graph %s: array %s: %w", path, array, err)
	}
	return v, nil
}
