package model

import (
	"context"
	"io"

	"github.com/tensorcache/tensorcache/internal/safetensors"
)

// Split splits "M.tc:NAMES" into the directory of a packed model and names of tensors, which may be missing. ok says whether the path is one of a packed model, or of a folder whose
// .safetensors files package safetensors does not know as a checkpoint.
func Split(path string) (dir, names string, ok bool) {
	if IsPacked(path) {
		return path, "", true
	}
	for i, c := range path {
		if c == ':' && i+1 < len(path) && (IsPacked(path[:i]) || isFolder(path[:i])) {
			return path[:i], path[i+1:], true
		}
	}
	return "", "", false
}

func isFolder(path string) bool {
	files, err := filesOf(path)
	return err == nil && len(files) > 0 && !safetensors.IsCheckpoint(path)
}

// OpenRows opens the rows of tensors of a packed model, or of any other that Open takes: of the names and patterns of safetensors.OpenCheckpoint, or of the tensor that is chosen if there are none.
func OpenRows(path, names string, rank int, prefer ...string) (*safetensors.Checkpoint, error) {
	m, err := Open(path)
	if err != nil {
		return nil, err
	}
	if names != "" {
		path += ":" + names
	}
	return safetensors.OpenSource(path, names, rowsOf{m}, rank, prefer...)
}

// rowsOf is a model as a source of rows.
type rowsOf struct{ *Model }

func (r rowsOf) Names() (names []string) {
	for name, i := range r.named {
		if i >= 0 {
			names = append(names, name)
		}
	}
	return names
}

func (r rowsOf) Tensor(name string) (safetensors.Entry, io.ReaderAt) {
	i := r.named[name]
	return r.tensors[i].Entry, bytesOf{r.Model, i}
}

func (r rowsOf) Stamp() string { return r.hash.String() }

// bytesOf reads the bytes of a tensor.
type bytesOf struct {
	m      *Model
	tensor int
}

// ReadAt implements io.ReaderAt.
func (b bytesOf) ReadAt(dst []byte, at int64) (int, error) {
	if err := b.m.Read(context.Background(), []Want{{b.tensor, at, dst}}); err != nil {
		return 0, err
	}
	return len(dst), nil
}
