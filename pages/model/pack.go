package model

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/internal/safetensors"
	"github.com/tensorcache/tensorcache/pages"
)

// PackOptions say how to pack a model.
type PackOptions struct {
	// Codec, PageBytes, Stage, Workers and Seed are those of pages.PackOptions. Codec "" is pages.Smallest. Rows of a type that the codec does not serve stay raw.
	Codec     string
	PageBytes int
	Stage     string
	Workers   int
	Seed      uint64
	// Base is a packed model to store differences from; "" for none.
	Base string
	// KeepEvery is how many models in a row there are of which one has no base: if the base lies on KeepEvery - 1 others or more, the model is packed as a whole. 0: always
	// as a difference.
	KeepEvery int
	// Progress, if not nil, is told by one goroutine at a time what is done, and how much of it.
	Progress func(stage string, done, all int64)
}

// Packed says what was packed. Its JSON form is what `cachebench pack --json` prints of a model.
type Packed struct {
	Out  string `json:"out"`
	Hash Hash   `json:"hash"`
	Base *Base  `json:"base,omitempty"`
	// Files have Tensors, of which Tied have the bytes of another one.
	Files   int `json:"files"`
	Tensors int `json:"tensors"`
	Tied    int `json:"tied"`
	// Bytes are those of all tensors, StoredBytes those of the directory's pages, and Ratio is the quotient.
	Bytes       int64         `json:"bytes"`
	StoredBytes int64         `json:"stored_bytes"`
	Ratio       float64       `json:"ratio"`
	Tables      []PackedTable `json:"tables"`
	// ResumedBytes were packed by an earlier run.
	ResumedBytes int64   `json:"resumed_bytes,omitempty"`
	Seconds      float64 `json:"seconds"`
}

// PackedTable is a table of a packed model.
type PackedTable struct {
	DType       string `json:"dtype"`
	Rows        int64  `json:"rows"`
	RowBytes    int    `json:"row_bytes"`
	Delta       bool   `json:"delta,omitempty"`
	Codec       string `json:"codec"`
	Stage       string `json:"stage"`
	StoredBytes int64  `json:"stored_bytes"`
}

// Pack packs a .safetensors file, or a folder of such files with their indexes, into the directory out. out is made, is empty, or has a packed model, which readers
// see until the new one is complete. Unpack writes the files anew, byte for byte. After an error or an interruption the same call goes on where it was. It first reads
// the files once, to tell whether they are the same. Memory: 64 MiB for each worker, 128 MiB for each base of a chain, the headers, and 8 bytes a page.
func Pack(ctx context.Context, path, out string, o PackOptions) (*Packed, error) {
	if IsPacked(path) {
		return nil, fmt.Errorf("model: %s: is packed: unpack it first, or copy the directory", path)
	}
	src, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	stamp, err := src.stamp()
	if err != nil {
		return nil, err
	}
	return pack(ctx, src, out, o, func() error {
		now, err := src.stamp()
		if err == nil && now != stamp {
			err = fmt.Errorf("model: %s: the files changed while they were packed", path)
		}
		return err
	})
}

// Save packs the tensors of a header, whose data lie in memory, as one file of this name: [Pack] of a file that is not written.
func Save(ctx context.Context, name string, header []byte, data io.ReaderAt, out string, o PackOptions) (*Packed, error) {
	h, err := safetensors.ParseHeader(header)
	if err != nil {
		return nil, err
	}
	src, err := ofMemory(name, h, data)
	if err != nil {
		return nil, err
	}
	return pack(ctx, src, out, o, func() error { return nil })
}

// OfTable has a directory with the table of a file's only tensor opened as a packed model, too, as long as the table is not packed anew.
func OfTable(ctx context.Context, file, dir string) error {
	src, err := Open(file)
	if err != nil {
		return err
	}
	defer src.Close()
	t, err := pages.ReadManifest(dir)
	if err != nil {
		return err
	}
	sums, err := src.sums(ctx, nil)
	if err != nil {
		return err
	}
	p := &packing{src: src, out: dir, lay: &layout{of: []tensorOf{{SHA256: sums[0]}}}}
	p.m = manifest{Format: format, Version: version, Tables: []table{{DType: t.DType.String(), RowBytes: t.RowBytes, Rows: t.Rows, Generation: t.Generation}}}
	p.fill()
	return p.write()
}

// stamp returns what tells the files from others of the same names.
func (m *Model) stamp() (string, error) {
	var b strings.Builder
	for i, f := range m.raw {
		file, ok := f.(*os.File)
		if !ok {
			continue
		}
		info, err := file.Stat()
		if err != nil {
			return "", err
		}
		b.WriteString(datafile.Stamp(m.files[i].Name, info))
	}
	return b.String(), nil
}

// packing is one call of pack.
type packing struct {
	o     PackOptions
	src   *Model
	out   string
	base  *Model // nil: none
	based []int  // by tensor: that of the base, -1 for none
	m     manifest
	lay   *layout
}

func pack(ctx context.Context, src *Model, out string, o PackOptions, unchanged func() error) (_ *Packed, err error) {
	start := time.Now()
	if o.Codec == "" {
		o.Codec = pages.Smallest
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.KeepEvery < 0 || o.KeepEvery > 0 && o.Base == "" {
		return nil, fmt.Errorf("model: keep-base-every (%d) must be 1 or more, and be given with a base", o.KeepEvery)
	}
	p := &packing{o: o, src: src, out: out}
	p.m = manifest{Format: format, Version: version, Tables: []table{}}
	if o.Base != "" {
		if err := p.openBase(); err != nil {
			return nil, err
		}
		if p.base != nil {
			defer func() { err = errors.Join(err, p.base.Close()) }()
		}
	}
	lock, earlier, err := lockOut(out)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	p.m.Generation = 1
	if earlier != nil {
		p.m.Generation = earlier.Generation + 1
	}
	all := src.bytes()
	sums, err := src.sums(ctx, func(done int64) { o.Progress("reading, percent of the bytes", done, all) })
	if err != nil {
		return nil, err
	}
	if p.lay, err = lay(src, sums, p.match(), p.read(ctx)); err != nil {
		return nil, err
	}
	p.fill()
	resumed, err := p.begin()
	if err != nil {
		return nil, err
	}
	r, err := p.run(ctx, resumed)
	if err != nil {
		return nil, err
	}
	if err := unchanged(); err != nil {
		return nil, err
	}
	if err := p.commit(); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// bytes is the length of all tensors.
func (m *Model) bytes() (n int64) {
	for i := range m.tensors {
		n += m.tensors[i].Bytes()
	}
	return n
}

// openBase opens the base, unless the model is to be packed as a whole.
func (p *packing) openBase() error {
	if !IsPacked(p.o.Base) {
		return fmt.Errorf("model: base (%s) must be a packed model", p.o.Base)
	}
	base, err := Open(p.o.Base)
	if err != nil {
		return err
	}
	depth := 0 // counted: a base may have been packed anew since, on other ones
	for m := base; m != nil; m = m.base {
		if same(m.path, p.out) {
			return errors.Join(fmt.Errorf("model: base (%s) must not be the model that is packed, nor lie on it", p.o.Base), base.Close())
		}
		depth++
	}
	if p.o.KeepEvery > 0 && depth >= p.o.KeepEvery {
		return base.Close()
	}
	if depth > maxDepth {
		return errors.Join(fmt.Errorf("model: base (%s) must lie on at most %d others", p.o.Base, maxDepth-1), base.Close())
	}
	path, err := filepath.Abs(p.o.Base)
	if short, e := filepath.Rel(folderOf(p.out), path); err == nil && e == nil {
		path = short
	}
	p.base, p.m.Base = base, &Base{Path: path, Hash: base.hash, Depth: depth}
	return err
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// match finds the tensors that are stored as differences, and returns the hashes of those of the base.
func (p *packing) match() []Hash {
	n := len(p.src.tensors)
	p.based = make([]int, n)
	below := make([]Hash, n)
	for i := range p.src.tensors {
		t := &p.src.tensors[i]
		p.based[i] = -1
		if p.base == nil || t.Bytes() == 0 {
			continue
		}
		if p.based[i] = p.base.like(t, p.src.files[t.File].Name); p.based[i] >= 0 {
			below[i] = p.base.tensors[p.based[i]].SHA256
		}
	}
	return below
}

// read returns what reads the bytes that are stored of a tensor: the difference, if it is stored as one.
func (p *packing) read(ctx context.Context) func(tensor int, at int64, into []byte) error {
	return func(tensor int, at int64, into []byte) error {
		if err := p.src.Read(ctx, []Want{{tensor, at, into}}); err != nil || p.based[tensor] < 0 {
			return err
		}
		below := make([]byte, len(into))
		err := p.base.Read(ctx, []Want{{p.based[tensor], at, below}})
		subtle.XORBytes(into, into, below)
		return err
	}
}

// fill makes the manifest.
func (p *packing) fill() {
	p.m.Tables = append(p.m.Tables, p.lay.tables...)
	next := 0
	for _, f := range p.src.files {
		if f.Header == nil {
			p.m.Files = append(p.m.Files, fileOf{Name: f.Name, Text: f.Text, Index: true})
			continue
		}
		n := len(f.Header.Entries)
		p.m.Files = append(p.m.Files, fileOf{Name: f.Name, Text: string(f.Header.Text), Tensors: p.lay.of[next:][:n]})
		next += n
	}
	p.m.Hash = hashOf(p.m.Files)
}

// lockOut makes the directory and takes its lock. It returns the manifest of the model that the directory has.
func lockOut(out string) (*os.File, *manifest, error) {
	_, err := os.Stat(out)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(out, 0o777); err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{manifestFile, lockFile, packingFile}, e.Name()) && generationOf(e.Name()) == 0 {
			return nil, nil, fmt.Errorf("model: %s: must be a new or empty directory, or one of a packed model (it has %s)", out, e.Name())
		}
	}
	lock, err := filelock.Try(filepath.Join(out, lockFile))
	if filelock.Held(err) {
		return nil, nil, fmt.Errorf("model: %s: another process is writing to it: %w", out, err)
	}
	if err != nil {
		if made {
			os.Remove(out)
		}
		return nil, nil, fmt.Errorf("model: %s: cannot be written to: %w", out, err)
	}
	m, err := readManifest(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		lock.Close()
		return nil, nil, err
	}
	return lock, m, nil
}

// generationOf returns the generation that a folder of this name is of, 0 for none.
func generationOf(name string) int {
	digits, ok := strings.CutPrefix(name, folderPrefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || digits != strconv.Itoa(n) {
		return 0
	}
	return n
}

// begin makes the folder of the generation, or finds the one that an earlier run with the same source and options has begun.
func (p *packing) begin() (resumed bool, err error) {
	folder := filepath.Dir(tableFolder(p.out, p.m.Generation, 0))
	o := p.o
	key, err := json.Marshal(struct {
		Hash   Hash
		Base   *Base
		Tables []table
		Files  []fileOf
		Text   string
	}{p.m.Hash, p.m.Base, p.m.Tables, p.m.Files, fmt.Sprintf("%d %q %d %q %d", p.m.Generation, o.Codec, o.PageBytes, o.Stage, o.Seed)})
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(key)
	text := []byte(fmt.Sprintf("%s%v\"}\n", packingMark, Hash(sum)))
	path := filepath.Join(p.out, packingFile)
	if was, err := os.ReadFile(path); err == nil && string(was) == string(text) {
		return true, os.MkdirAll(folder, 0o777)
	}
	// Before the note: what is there is not of this run.
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o777)); err != nil {
		return false, err
	}
	return false, atomicfile.Write(path, text)
}

// run packs the tables that are not packed yet.
func (p *packing) run(ctx context.Context, resumed bool) (*Packed, error) {
	r := &Packed{Out: p.out, Hash: p.m.Hash, Base: p.m.Base, Files: len(p.m.Files), Tensors: len(p.src.tensors), Bytes: p.src.bytes(), Tables: []PackedTable{}}
	all, before := int64(0), int64(0)
	for i, t := range p.m.Tables {
		all += t.Rows * int64(t.RowBytes)
		r.Tied -= len(p.lay.parts[i])
	}
	for i := range p.src.tensors {
		if p.src.tensors[i].Bytes() > 0 {
			r.Tied++
		}
	}
	for i, t := range p.m.Tables {
		folder := tableFolder(p.out, p.m.Generation, i)
		m, err := pages.ReadManifest(folder)
		if !resumed || err != nil {
			m, err = p.packTable(ctx, i, folder, func(rows int64, first bool) {
				if first {
					r.ResumedBytes += rows * int64(t.RowBytes)
				}
				p.o.Progress("packing, percent of the bytes", before+rows*int64(t.RowBytes), all)
			})
		} else {
			r.ResumedBytes += t.Rows * int64(t.RowBytes)
		}
		if err != nil {
			return nil, err
		}
		before += t.Rows * int64(t.RowBytes)
		r.StoredBytes += m.PageTotal
		r.Tables = append(r.Tables, PackedTable{t.DType, t.Rows, t.RowBytes, t.Delta, m.Codec, m.Stage.String(), m.PageTotal})
	}
	r.Ratio = float64(r.Bytes) / float64(max(1, r.StoredBytes))
	return r, nil
}

func (p *packing) packTable(ctx context.Context, i int, folder string, progress func(rows int64, first bool)) (*pages.Manifest, error) {
	t := p.m.Tables[i]
	of, err := dtype.Parse(t.DType)
	if err != nil {
		return nil, err
	}
	w, err := pages.CreateFiles(folder)
	if err != nil {
		return nil, err
	}
	first := true
	return pages.Pack(ctx, func() (pages.Source, error) { return &source{p: p, ctx: ctx, table: i}, nil }, w, pages.PackOptions{
		Name: fmt.Sprintf("%s/%d", filepath.Base(filepath.Clean(p.out)), i), DType: of, Codec: p.o.Codec, OrRaw: true, PageBytes: p.o.PageBytes, Stage: p.o.Stage,
		Seed: p.o.Seed, Workers: p.o.Workers, SourceKey: p.m.Hash.String(),
		Progress: func(rows int64) {
			progress(rows, first)
			first = false
		},
	})
}

// write writes the manifest.
func (p *packing) write() error {
	b, err := json.Marshal(&p.m)
	if err != nil {
		return err
	}
	if len(b) > maxManifest {
		return fmt.Errorf("model: %s: manifest (%d bytes) must be at most %d", p.out, len(b), maxManifest)
	}
	if _, err := parseManifest(b); err != nil {
		return fmt.Errorf("model: %s: %w", p.out, err)
	}
	return atomicfile.Write(filepath.Join(p.out, manifestFile), append(b, '\n'))
}

// commit makes the generation the one that readers open, and removes the one before.
func (p *packing) commit() error {
	if err := p.write(); err != nil {
		return err
	}
	os.Remove(filepath.Join(p.out, packingFile))
	entries, err := os.ReadDir(p.out)
	for _, e := range entries {
		if g := generationOf(e.Name()); g > 0 && g != p.m.Generation {
			os.RemoveAll(filepath.Join(p.out, e.Name())) // what is left will be tried again
		}
	}
	return err
}

// source has the rows of a table, as they are stored. Several goroutines read it.
type source struct {
	p     *packing
	ctx   context.Context
	table int
}

func (s *source) Rows() int     { return int(s.p.m.Tables[s.table].Rows) }
func (s *source) RowBytes() int { return s.p.m.Tables[s.table].RowBytes }
func (s *source) Close() error  { return nil }

// Read is never called, as there is ReadFrom.
func (s *source) Read([]byte) (int, error) { return 0, io.EOF }

// ReadFrom implements pages.RangedSource.
func (s *source) ReadFrom(row int64, dst []byte) error {
	p := s.p
	from := row * int64(s.RowBytes())
	to := from + int64(len(dst))
	clear(dst) // between tensors
	in := p.lay.parts[s.table]
	i, exact := slices.BinarySearchFunc(in, from, func(tensor int, at int64) int { return cmp.Compare(p.lay.of[tensor].At, at) })
	if !exact && i > 0 {
		i--
	}
	var wants, below []Want
	for ; i < len(in) && p.lay.of[in[i]].At < to; i++ {
		t := in[i]
		at := p.lay.of[t].At
		begin, end := max(from, at), min(to, at+p.src.tensors[t].Bytes())
		if begin >= end {
			continue
		}
		wants = append(wants, Want{t, begin - at, dst[begin-from : end-from]})
		if p.based[t] >= 0 {
			below = append(below, Want{p.based[t], begin - at, make([]byte, end-begin)})
		}
	}
	if err := p.src.Read(s.ctx, wants); err != nil || len(below) == 0 {
		return err
	}
	if err := p.base.Read(s.ctx, below); err != nil {
		return err
	}
	for i := range below {
		subtle.XORBytes(wants[i].Into, wants[i].Into, below[i].Into)
	}
	return nil
}

// Unpack writes the files of a model to a folder, which is made if there is none, byte for byte as they were. A file that exists is an error, unless force has it replaced. Each file
// is there as a whole or not at all. progress, if not nil, is told how many bytes have been written.
func (m *Model) Unpack(ctx context.Context, dir string, force bool, progress func(bytes int64)) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	for _, f := range m.files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil && !force {
			return fmt.Errorf("model: %w", &fs.PathError{Op: "unpack", Path: filepath.Join(dir, f.Name), Err: fs.ErrExist})
		}
	}
	done, next := int64(0), 0
	for _, f := range m.files {
		path := filepath.Join(dir, f.Name)
		if f.Header == nil {
			if err := atomicfile.Write(path, []byte(f.Text)); err != nil {
				return err
			}
			continue
		}
		n := len(f.Header.Entries)
		err := m.unpackFile(ctx, path, f.Header, next, func(bytes int64) {
			if done += bytes; progress != nil {
				progress(done)
			}
		})
		if err != nil {
			return err
		}
		next += n
	}
	return nil
}

// unpackFile writes one file, whose tensors begin with number first.
func (m *Model) unpackFile(ctx context.Context, path string, h *safetensors.Header, first int, wrote func(bytes int64)) error {
	err := atomicfile.Replace(path, func(f *os.File) error {
		if _, err := f.Write(h.Bytes()); err != nil {
			return err
		}
		begin := int64(len(h.Bytes()))
		buffer := make([]byte, 2*batchBytes)
		order := make([]int, len(h.Entries)) // as they lie in the file
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(h.Entries[a].From, h.Entries[b].From) })
		var wants []Want
		at, used := int64(0), 0
		flush := func() error {
			if err := m.Read(ctx, wants); err != nil {
				return err
			}
			_, err := f.WriteAt(buffer[:used], begin+at)
			wrote(int64(used))
			at, used, wants = at+int64(used), 0, nil
			return err
		}
		for _, i := range order {
			for from, n := int64(0), h.Entries[i].To-h.Entries[i].From; from < n; {
				part := buffer[used:min(int64(len(buffer)), int64(used)+n-from)]
				wants = append(wants, Want{first + i, from, part})
				used, from = used+len(part), from+int64(len(part))
				if used == len(buffer) {
					if err := flush(); err != nil {
						return err
					}
				}
			}
		}
		return flush()
	})
	if err != nil {
		return fmt.Errorf("model: writing %s: %w", path, err)
	}
	return nil
}
