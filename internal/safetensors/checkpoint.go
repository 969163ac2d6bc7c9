package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
)

// Names of the files of a checkpoint.
const (
	indexFile  = "model.safetensors.index.json"
	singleFile = "model.safetensors"
)

// Checkpoint reads rows of tensors that may lie in several files. The rows of some tensors of one form follow each other. Where several such lists are joined, row n is
// row n of each list, one behind the other: the float8 values of a table and their scales, for example. Rows are read by their place in the files, and nothing is kept.
// [Checkpoint.ReadFrom] is safe for concurrent use.
type Checkpoint struct {
	name   string
	tables []*Joined // a tensor of each list
	starts []int64   // row at which each begins, then the number of all
	files  []*shard
	source Source
	next   int64 // row that Read reads next
}

// Source has tensors under names that do not lie in .safetensors files as they are. It is closed with its Checkpoint.
type Source interface {
	Names() []string
	// Tensor returns what a header would say of a tensor, and what reads its bytes.
	Tensor(name string) (Entry, io.ReaderAt)
	// Stamp tells the source from others of the same name.
	Stamp() string
	Close() error
}

// OpenSource is OpenCheckpoint of a source. names are those of tensors. Without any the tensor is chosen as by Open. Alone tensors must have so many axes. The source is closed after an error, too.
func OpenSource(path, names string, s Source, rank int, prefer ...string) (*Checkpoint, error) {
	where := &places{of: map[string]string{}, names: s.Names(), source: s}
	for _, name := range where.names {
		where.of[name] = path
	}
	where.sort()
	if names == "" {
		var tensors []tensor
		for _, name := range where.names {
			e, _ := s.Tensor(name)
			tensors = append(tensors, tensor{name, e.Stored, e.DType, e.Shape, e.From, e.To})
		}
		t, err := choose(tensors, "", rank, prefer)
		if err != nil {
			return nil, errors.Join(inFile(path, err), s.Close())
		}
		names = t.name
	}
	c, err := openLists(path, path, names, where, rank)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	c.source = s
	return c, nil
}

// checkpointEnd is where the name of an index ends and those of tensors begin.
var checkpointEnd = regexp.MustCompile(`(?i)\.index\.json:`)

// SplitCheckpoint splits a path such as "DIR:NAMES", where DIR is a folder with model.safetensors.index.json or model.safetensors, "FILE.index.json:NAMES", or
// "FILE.safetensors:NAMES" whose names have a star or a comma. The file is that which says what tensors there are. If the path is none of these, names is empty.
func SplitCheckpoint(path string) (file, names string) {
	if file, names = datafile.Split(path, checkpointEnd); names != "" {
		return file, names
	}
	if file, names = Split(path); strings.ContainsAny(names, "*,") {
		return file, names
	}
	for i, c := range path {
		if c != ':' || i+1 == len(path) {
			continue
		}
		for _, name := range []string{indexFile, singleFile} {
			if file := filepath.Join(path[:i], name); isFile(file) {
				return file, path[i+1:]
			}
		}
	}
	return path, ""
}

// IsCheckpoint says whether a path is a folder with model.safetensors.index.json or model.safetensors, or an index, without names of tensors.
func IsCheckpoint(path string) bool {
	return isFile(filepath.Join(path, indexFile)) || isFile(filepath.Join(path, singleFile)) || isFile(path) && checkpointEnd.MatchString(path+":")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// OpenCheckpoint opens tensors of a checkpoint: "DIR:model.*.weight+model.*.scale". A plus joins lists. A list is names or patterns with commas between them; a star
// stands for any text, and what a pattern matches is taken in natural order, so that "shard_2" comes before "shard_10".
// A tensor whose whole name is one of these texts is that tensor.
//
// OpenCheckpoint returns nil without an error if the path is none of SplitCheckpoint, or names one tensor of a file by its name. Tensors of a list must have one element
// type and as many elements a row, and rows as the others' tensors at the same place. Alone they must have at least minRank axes. The error of a missing file is fs.ErrNotExist.
func OpenCheckpoint(path string, minRank int) (c *Checkpoint, err error) {
	file, names := SplitCheckpoint(path)
	if names == "" {
		if IsCheckpoint(path) {
			return nil, inFile(path, errors.New("tensors must be named behind a colon, as in DIR:model.*.weight+model.*.scale"))
		}
		return nil, nil
	}
	where, err := catalog(file)
	if err != nil {
		return nil, inFile(file, err)
	}
	if where.of[names] != "" && path == file+":"+names && where.single {
		return nil, nil
	}
	return openLists(path, file, names, where, minRank)
}

// openLists opens tensors of a file or source. Alone they must have so many axes.
func openLists(path, file, names string, where *places, rank int) (c *Checkpoint, err error) {
	lists, err := where.lists(names)
	if err != nil {
		return nil, inFile(file, err)
	}
	c = &Checkpoint{name: path, starts: []int64{0}}
	defer func() {
		if err != nil {
			c.Close()
			c, err = nil, inFile(path, err)
		}
	}()
	if len(lists) > 1 {
		rank = 1
	}
	for i := range lists[0] {
		t := &Joined{name: path}
		for k, list := range lists {
			r, err := c.open(where, list[i], rank)
			if err != nil {
				return c, err
			}
			if i > 0 {
				if first := c.tables[0].parts[k]; r.DType() != first.DType() || r.rowBytes != first.rowBytes {
					return c, fmt.Errorf("tensor %q (%v, rows of %d bytes) must be like %q (%v, rows of %d bytes)",
						datafile.Clip(list[i]), r.DType(), r.rowBytes, datafile.Clip(lists[k][0]), first.DType(), first.rowBytes)
				}
			}
			t.parts = append(t.parts, r)
		}
		if err := t.join(); err != nil {
			return c, err
		}
		c.tables, c.starts = append(c.tables, t), append(c.starts, c.starts[i]+int64(t.Rows()))
	}
	return c, nil
}

// shard is an open file of a checkpoint.
type shard struct {
	path    string
	file    *os.File
	size    int64
	data    int64 // first byte
	tensors map[string]*tensor
}

// open returns a reader of a tensor, which does not own its file.
func (c *Checkpoint) open(where *places, name string, rank int) (*Reader, error) {
	if where.source != nil {
		e, data := where.source.Tensor(name)
		r, err := newReader(where.of[name], &tensor{e.Name, e.Stored, e.DType, e.Shape, 0, e.To - e.From}, 0, e.To-e.From, rank)
		if err == nil {
			r.data = data
		}
		return r, err
	}
	path := where.of[name]
	i := slices.IndexFunc(c.files, func(s *shard) bool { return s.path == path })
	if i < 0 {
		s, err := openShard(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("file %q, where the index has tensor %q: %w", filepath.Base(path), datafile.Clip(name), err)
			}
			return nil, inFile(path, err)
		}
		i, c.files = len(c.files), append(c.files, s)
	}
	s := c.files[i]
	t := s.tensors[name]
	if t == nil {
		return nil, fmt.Errorf("file %q must have tensor %q, as the index says", filepath.Base(path), datafile.Clip(name))
	}
	r, err := newReader(path, t, s.data, s.size, rank)
	if err == nil {
		r.file, r.data = s.file, s.file
	}
	return r, err
}

func openShard(path string) (*shard, error) {
	f, size, err := datafile.Open(path)
	if err != nil {
		return nil, err
	}
	tensors, data, err := readHeader(f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	s := &shard{path: path, file: f, size: size, data: data, tensors: make(map[string]*tensor, len(tensors))}
	for i := range tensors {
		s.tensors[tensors[i].name] = &tensors[i]
	}
	return s, nil
}

// Name returns path:names.
func (c *Checkpoint) Name() string { return c.name }

// DType returns the type of the rows: that of the elements if all tensors have the same.
func (c *Checkpoint) DType() dtype.Type { return c.tables[0].of }

// Shape returns the axes of the only tensor, or else rows and elements a row.
func (c *Checkpoint) Shape() []int {
	if len(c.tables) == 1 && len(c.tables[0].parts) == 1 {
		return c.tables[0].parts[0].Shape()
	}
	return []int{c.Rows(), c.RowBytes() / c.DType().Size()}
}

// Rows returns the number of rows of all tensors of a list.
func (c *Checkpoint) Rows() int { return int(c.starts[len(c.tables)]) }

// RowBytes returns the bytes of a row.
func (c *Checkpoint) RowBytes() int { return c.tables[0].rowBytes }

// Read is that of Reader.
func (c *Checkpoint) Read(dst []byte) (rows int, err error) {
	left := int64(c.Rows()) - c.next
	if left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(dst)/c.RowBytes()), left))
	if len(dst)%c.RowBytes() == 0 {
		dst = dst[:n*c.RowBytes()]
	}
	if err := c.ReadFrom(c.next, dst); err != nil {
		return 0, err
	}
	c.next += int64(n)
	return n, nil
}

// ReadFrom is that of Reader.
func (c *Checkpoint) ReadFrom(row int64, dst []byte) error {
	rowBytes := c.RowBytes()
	if len(dst)%rowBytes != 0 || row < 0 || row > int64(c.Rows()) || int64(len(dst)/rowBytes) > int64(c.Rows())-row {
		return inFile(c.name, fmt.Errorf("rows from %d on (%d bytes) must be whole rows of %d bytes below %d", row, len(dst), rowBytes, c.Rows()))
	}
	i, exact := slices.BinarySearch(c.starts, row)
	if !exact {
		i--
	}
	for ; len(dst) > 0; i++ {
		from := row - c.starts[i]
		n := min(int64(len(dst)/rowBytes), c.starts[i+1]-row)
		if err := c.tables[i].ReadFrom(from, dst[:n*int64(rowBytes)]); err != nil {
			return err
		}
		dst, row = dst[n*int64(rowBytes):], row+n
	}
	return nil
}

// Stamp returns what tells the files from others of the same names: length and time of the last change of each.
func (c *Checkpoint) Stamp() (string, error) {
	if c.source != nil {
		return c.source.Stamp(), nil
	}
	var b strings.Builder
	for _, s := range c.files {
		info, err := s.file.Stat()
		if err != nil {
			return "", inFile(s.path, err)
		}
		b.WriteString(datafile.Stamp(filepath.Base(s.path), info))
	}
	return b.String(), nil
}

// Maps reports that Map returns nil: the rows do not lie in one file as they are.
func (c *Checkpoint) Maps() bool { return false }

// Map returns nil.
func (c *Checkpoint) Map() ([]byte, error) { return nil, nil }

// Close closes the files. Closing twice is no error.
func (c *Checkpoint) Close() (err error) {
	for _, s := range c.files {
		err = errors.Join(err, s.file.Close())
	}
	c.files = nil
	if c.source != nil {
		err = c.source.Close()
		c.source = nil
	}
	for _, t := range c.tables {
		for _, r := range t.parts {
			r.file, r.data = nil, nil
		}
	}
	return err
}

// places says in which file each tensor of a checkpoint lies.
type places struct {
	of     map[string]string
	names  []string // in the order of numbers
	single bool     // there is one file, and no index
	source Source   // nil: files
}

// lists returns the names that a text stands for, lists of as many.
func (p *places) lists(text string) (lists [][]string, err error) {
	split := func(text, by string) []string {
		if p.of[text] != "" {
			return []string{text}
		}
		return strings.Split(text, by)
	}
	for _, list := range split(text, "+") {
		var names []string
		for _, one := range split(list, ",") {
			found := p.match(one)
			if len(found) == 0 {
				return nil, datafile.Misnamed("tensor (%q) must be or match some of %s", datafile.Clip(one), datafile.List(p.names))
			}
			names = append(names, found...)
		}
		if len(lists) > 0 && len(names) != len(lists[0]) {
			return nil, datafile.Misnamed("%q (%d tensors) must be as many as the %d before the plus", datafile.Clip(list), len(names), len(lists[0]))
		}
		lists = append(lists, names)
	}
	return lists, nil
}

// match returns the tensor of a name, or those that a pattern matches.
func (p *places) match(pattern string) (found []string) {
	if p.of[pattern] != "" {
		return []string{pattern}
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return nil
	}
	first, last := parts[0], parts[len(parts)-1]
	for _, name := range p.names {
		rest, ok := strings.CutPrefix(name, first)
		if !ok || !strings.HasSuffix(rest, last) {
			continue
		}
		rest = rest[:len(rest)-len(last)]
		for _, part := range parts[1 : len(parts)-1] {
			if _, rest, ok = strings.Cut(rest, part); !ok {
				break
			}
		}
		if ok {
			found = append(found, name)
		}
	}
	return found
}
