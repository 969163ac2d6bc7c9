package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/slab"
)

// Model has the tensors of .safetensors files, packed or as they are.
type Model struct {
	path    string
	files   []File
	tensors []Tensor
	named   map[string]int // by name; -1 for one that several files have
	hash    Hash           // zero if the files are not packed
	raw     []io.ReaderAt  // by file, of files that are not packed
	closers []io.Closer

	packed *manifest
	tables []*pages.Table
	base   *Model // of a delta
	based  []int  // by tensor: that of the base, -1 for none
}

// File is a file of a model.
type File struct {
	// Name is its name in the folder.
	Name string
	// Header is that of a .safetensors file; nil for an index, whose text is Text.
	Header *safetensors.Header
	Text   string
}

// Tensor is a tensor of a model.
type Tensor struct {
	// File is the index of its file.
	File int
	// Entry is what the file's header says of it.
	safetensors.Entry
	// SHA256 is that of its bytes, zero if the model is not packed.
	SHA256 Hash

	table int   // of a packed model
	at    int64 // first byte in the table, or in the file
}

// Bytes is the length of the tensor.
func (t *Tensor) Bytes() int64 { return t.To - t.From }

// element is the type that codecs are told: bytes for a type that package dtype does not have.
func (t *Tensor) element() dtype.Type {
	if t.DType == dtype.Invalid {
		return dtype.Uint8
	}
	return t.DType
}

// indexEnd is what the name of an index ends in.
const indexEnd = ".safetensors.index.json"

// IsPacked says whether a path is the directory of a packed model, also of one whose packing was interrupted, which does not open. Files of the same names that other programs
// wrote do not make it one.
func IsPacked(path string) bool {
	return begins(filepath.Join(path, manifestFile), `"`+format+`"`) || begins(filepath.Join(path, packingFile), packingMark)
}

// begins says whether a regular file has a mark in its first bytes. One that must not be read counts as if it had: who opens it is told why that fails.
func begins(path, mark string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return errors.Is(err, fs.ErrPermission)
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	return bytes.Contains(head[:n], []byte(mark))
}

// IsTable says whether a path is the directory of a table of pages, which may be a packed model of one tensor besides: see OfTable.
func IsTable(path string) bool {
	_, err := pages.ReadManifest(path)
	return err == nil
}

// IsOneTable says whether a .safetensors file has one tensor, whose last axis can be the row of a table. Pack takes such files, too, but a table serves its rows.
func IsOneTable(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return false
	}
	h, f, err := safetensors.List(path)
	if err != nil {
		return false
	}
	f.Close()
	if len(h.Entries) != 1 {
		return false
	}
	t := Tensor{Entry: h.Entries[0]}
	return t.DType != dtype.Invalid && t.Bytes() > 0 && rowOf(&t) > 0 && rowOf(&t) <= slab.MaxRowBytes
}

// Is says whether a path is one that Open takes: a packed model, a .safetensors file, or a folder with such files.
func Is(path string) bool {
	if IsPacked(path) {
		return true
	}
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	if info.IsDir() {
		files, _ := filesOf(path)
		return len(files) > 0
	}
	return strings.EqualFold(filepath.Ext(path), ".safetensors")
}

// filesOf returns the names of the .safetensors files and indexes in a folder, in natural order.
func filesOf(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	shards := 0
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir() || strings.HasPrefix(name, "."):
		case strings.EqualFold(filepath.Ext(name), ".safetensors"):
			names = append(names, name)
			shards++
		case strings.HasSuffix(name, indexEnd):
			names = append(names, name)
		}
	}
	if shards == 0 {
		return nil, nil
	}
	slices.SortFunc(names, func(a, b string) int {
		if order := datafile.NaturalOrder(a, b); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
	return names, nil
}

// Open opens a packed model, a .safetensors file, or a folder with such files, also with an index. A delta opens its base, too: where it lay when the delta was
// packed, or beside the delta. The error of a base that is missing, or has other contents, has both hashes.
func Open(path string) (*Model, error) {
	m := &Model{path: path}
	err := m.open(nil)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open opens what the path names. chain are the directories of the deltas above.
func (m *Model) open(chain []os.FileInfo) error {
	if IsPacked(m.path) {
		return m.openPacked(chain)
	}
	dir, names := filepath.Dir(m.path), []string{filepath.Base(m.path)}
	info, err := os.Stat(m.path)
	if err == nil && info.IsDir() {
		dir = m.path
		if names, err = filesOf(dir); err == nil && len(names) == 0 {
			err = errors.New("the folder has no .safetensors file, and is not a packed model")
		}
	}
	if err != nil {
		return fmt.Errorf("model: %s: %w", m.path, err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, indexEnd) {
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("model: %w", err)
			}
			m.addFile(File{Name: name, Text: string(text)}, nil, 0)
			continue
		}
		h, f, err := safetensors.List(path)
		if err != nil {
			return err
		}
		m.closers = append(m.closers, f)
		m.addFile(File{Name: name, Header: h}, f, h.Data)
	}
	return m.index()
}

// ofMemory returns a model of one file that lies in memory.
func ofMemory(name string, h *safetensors.Header, data io.ReaderAt) (*Model, error) {
	m := &Model{path: name}
	m.addFile(File{Name: name, Header: h}, data, 0)
	return m, m.index()
}

// addFile adds a file that is not packed, whose data begin at a byte of what reads it.
func (m *Model) addFile(f File, data io.ReaderAt, begin int64) {
	m.raw = append(m.raw, data)
	if f.Header != nil {
		for _, e := range f.Header.Entries {
			m.tensors = append(m.tensors, Tensor{File: len(m.files), Entry: e, at: begin + e.From})
		}
	}
	m.files = append(m.files, f)
}

// index finds the tensors by their names. Where an index says in which file one lies, that one is meant.
func (m *Model) index() error {
	m.named = make(map[string]int, len(m.tensors))
	for i, t := range m.tensors {
		if _, twice := m.named[t.Name]; twice {
			i = -1
		}
		m.named[t.Name] = i
	}
	for _, f := range m.files {
		if f.Header != nil {
			continue
		}
		in, err := safetensors.ParseIndex([]byte(f.Text))
		if err != nil {
			return fmt.Errorf("model: %s: %s: %w", m.path, f.Name, err)
		}
		for name, file := range in {
			i := slices.IndexFunc(m.files, func(f File) bool { return f.Name == file && f.Header != nil })
			if i < 0 {
				return fmt.Errorf("model: %s: %s: file %q, where the index has tensor %q: %w", m.path, f.Name, datafile.Clip(file), datafile.Clip(name), fs.ErrNotExist)
			}
			if known, ok := m.named[name]; ok && known >= 0 {
				continue
			}
			for k, t := range m.tensors {
				if t.File == i && t.Name == name {
					m.named[name] = k
				}
			}
		}
	}
	return nil
}

// openPacked opens the tables, and the base.
func (m *Model) openPacked(chain []os.FileInfo) (err error) {
	for tries := 0; ; tries++ {
		if m.packed, err = readManifest(m.path); err != nil {
			return err
		}
		if err = m.openTables(); err == nil {
			break
		}
		for _, c := range m.closers {
			c.Close()
		}
		m.closers, m.tables = nil, nil
		// A writer may have committed another generation meanwhile and dropped this one.
		again, err2 := readManifest(m.path)
		if !errors.Is(err, fs.ErrNotExist) || tries == 3 || err2 != nil || again.Generation == m.packed.Generation {
			return err
		}
	}
	m.hash = m.packed.Hash
	for i, f := range m.packed.Files {
		m.files = append(m.files, File{Name: f.Name, Header: m.packed.header[i]})
		if f.Index {
			m.files[i].Text = f.Text
			continue
		}
		for k, t := range f.Tensors {
			m.tensors = append(m.tensors, Tensor{File: i, Entry: m.packed.header[i].Entries[k], SHA256: t.SHA256, table: t.Table, at: t.At})
		}
	}
	if err := m.index(); err != nil {
		return err
	}
	if b := m.packed.Base; b != nil {
		here, err := os.Stat(m.path)
		if err != nil {
			return fmt.Errorf("model: %w", err)
		}
		return m.openBase(b, append(chain, here))
	}
	return nil
}

func (m *Model) openTables() error {
	for i, t := range m.packed.Tables {
		p, err := pages.Open(m.tableFolder(i), pages.FileOptions{})
		if err != nil {
			return err
		}
		m.tables, m.closers = append(m.tables, p), append(m.closers, p)
		if of := p.Manifest(); of.Rows != t.Rows || of.RowBytes != t.RowBytes || of.DType.String() != t.DType {
			return fmt.Errorf("model: %s: table %d (%d rows of %d bytes of %v) must have %d rows of %d bytes of %s", m.path, i, of.Rows, of.RowBytes, of.DType, t.Rows, t.RowBytes, t.DType)
		}
		if t.Generation != 0 && p.Manifest().Generation != t.Generation {
			return fmt.Errorf("model: %s: the table has changed since it was packed (generation %d, now %d): its rows can be read, and no file", m.path, t.Generation, p.Manifest().Generation)
		}
	}
	return nil
}

func (m *Model) tableFolder(i int) string { return tableFolder(m.path, m.packed.Generation, i) }

func tableFolder(dir string, generation, i int) string {
	if generation == 0 {
		return dir
	}
	return filepath.Join(dir, fmt.Sprintf("%s%d", folderPrefix, generation), fmt.Sprint(i))
}

// folderOf returns the absolute path of the folder that has a path, also of ".".
func folderOf(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return filepath.Dir(path)
}

// openBase opens the base of a delta. Directories tell whether bases go round in a circle, and hashes do not: a checkpoint may have the contents of an earlier one.
func (m *Model) openBase(b *Base, chain []os.FileInfo) error {
	if len(chain) > maxDepth {
		return fmt.Errorf("model: %s: must lie on at most %d others", m.path, maxDepth)
	}
	here := folderOf(m.path)
	places := []string{b.Path}
	if !filepath.IsAbs(b.Path) {
		places = []string{filepath.Join(here, b.Path)}
	}
	if beside := filepath.Join(here, filepath.Base(b.Path)); beside != places[0] {
		places = append(places, beside)
	}
	var found []string
	for _, place := range places {
		of, err := readManifest(place)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("model: %s: base: %w", m.path, err)
		}
		if of.Hash != b.Hash {
			found = append(found, fmt.Sprintf("%s has %v", place, of.Hash))
			continue
		}
		info, err := os.Stat(place)
		if err != nil {
			return fmt.Errorf("model: base: %w", err)
		}
		if slices.ContainsFunc(chain, func(above os.FileInfo) bool { return os.SameFile(above, info) }) {
			found = append(found, place+" is a delta of the model itself")
			continue
		}
		m.base = &Model{path: place}
		if err := m.base.open(chain); err != nil {
			return err
		}
		m.matchBase()
		return nil
	}
	if len(found) > 0 {
		return fmt.Errorf("model: %s (%v) is a delta of a base with hash %v, and %s", m.path, m.hash, b.Hash, strings.Join(found, ", "))
	}
	return fmt.Errorf("model: %s (%v) is a delta of a base with hash %v, and there is none at %s: %w", m.path, m.hash, b.Hash, strings.Join(places, " or "), fs.ErrNotExist)
}

// matchBase finds the tensors of the base that those of the model are differences from.
func (m *Model) matchBase() {
	m.based = make([]int, len(m.tensors))
	for i := range m.tensors {
		m.based[i] = m.base.like(&m.tensors[i], m.files[m.tensors[i].File].Name)
	}
}

// like returns the tensor of the same name, type and shape, of the same file if several files have the name; -1 if there is none.
func (m *Model) like(t *Tensor, file string) int {
	i, ok := m.named[t.Name]
	if ok && i < 0 {
		i = slices.IndexFunc(m.tensors, func(o Tensor) bool { return o.Name == t.Name && m.files[o.File].Name == file })
	}
	if !ok || i < 0 || m.tensors[i].Stored != t.Stored || !slices.Equal(m.tensors[i].Shape, t.Shape) || m.tensors[i].Bytes() != t.Bytes() {
		return -1
	}
	return i
}

// Path returns the path that was opened.
func (m *Model) Path() string { return m.path }

// Files returns the files, which must not be changed.
func (m *Model) Files() []File { return m.files }

// Tensors returns the tensors of all files, which must not be changed.
func (m *Model) Tensors() []Tensor { return m.tensors }

// Hash returns the hash of the contents, zero if the model is not packed.
func (m *Model) Hash() Hash { return m.hash }

// Base returns what the model is a delta of, nil if it is none, or is not packed.
func (m *Model) Base() *Base {
	if m.packed == nil {
		return nil
	}
	return m.packed.Base
}

// Tables returns the tables of a packed model. They must not be closed.
func (m *Model) Tables() []*pages.Table { return m.tables }

// Lookup returns the index of a tensor. A name that several files have is an error, unless an index says which is meant.
func (m *Model) Lookup(name string) (int, error) {
	i, ok := m.named[name]
	switch {
	case !ok:
		var names []string
		for _, t := range m.tensors {
			names = append(names, t.Name)
		}
		return 0, datafile.Misnamed("model: %s: tensor (%q) must be one of %s", m.path, datafile.Clip(name), datafile.List(names))
	case i < 0:
		return 0, datafile.Misnamed("model: %s: tensor (%q) must be of one file only: open that file", m.path, datafile.Clip(name))
	}
	return i, nil
}

// Named returns the tensors by name, without those that several files have while no index says which is meant: that is an error.
func (m *Model) Named() (map[string]int, error) {
	for name := range m.named {
		if _, err := m.Lookup(name); err != nil {
			return nil, err
		}
	}
	return m.named, nil
}

// Verify reads all pages of all tables, and checks that every tensor has the bytes that it was packed with, also through the chain of bases. progress, if not nil, is
// told how many bytes of tensors have been checked.
func (m *Model) Verify(ctx context.Context, progress func(bytes int64)) error {
	if m.packed == nil {
		return fmt.Errorf("model: %s: only packed models can be verified", m.path)
	}
	for _, t := range m.tables {
		if _, err := pages.Verify(ctx, t.Stores()[0], nil); err != nil {
			return err
		}
	}
	sums, err := m.sums(ctx, progress)
	if err != nil {
		return err
	}
	var faults []error
	for i, t := range m.tensors {
		if sums[i] != t.SHA256 {
			faults = append(faults, fmt.Errorf("model: %s: tensor %q has hash %v, must have %v", m.path, datafile.Clip(t.Name), sums[i], t.SHA256))
		}
	}
	return errors.Join(faults...)
}

// Close closes files, tables and base. No read may be under way.
func (m *Model) Close() error {
	var faults []error
	for _, c := range m.closers {
		faults = append(faults, c.Close())
	}
	m.closers = nil
	if m.base != nil {
		faults = append(faults, m.base.Close())
		m.base = nil
	}
	return errors.Join(faults...)
}
