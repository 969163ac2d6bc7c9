package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// A directory of page files: docs/format/pages.md.
const (
	manifestFile = "manifest"
	// checkpointFile lies in a generation's folder while it is packed.
	checkpointFile = "packing"
	lockFile       = "lock"
)

// fileBytes bounds the length of a page file. It is part of the format: where a page lies follows from the lengths of those before. Tests set it.
var fileBytes int64 = 4 << 30

func generationFolder(dir string, generation uint64) string {
	return filepath.Join(dir, fmt.Sprintf("g%d", generation))
}

func pageFile(folder string, i int) string {
	return filepath.Join(folder, fmt.Sprintf("pages-%05d", i))
}

// placer says where pages lie, one after the other: each begins at a multiple of block, and no file is longer than fileBytes unless a single
// page is.
type placer struct {
	file int
	end  int64 // of the file's pages
}

// place returns the place of the next page.
func (p *placer) place(length int) (file int, offset int64) {
	n := int64(directio.Blocks(length)) * block
	if p.end > 0 && p.end+n > fileBytes {
		p.file++
		p.end = 0
	}
	p.end += n
	return p.file, p.end - n
}

// maxFiles bounds the page files of a generation.
const maxFiles = 1 << 16

// FileOptions say how page files are read.
type FileOptions struct {
	// Depth is the number of reads that may be under way at once, 1 to 1024; 0 for 64.
	Depth int
	// Engine is "pread", goroutines that read; "uring", io_uring, for builds with the tag liburing on Linux; or "", which is uring where the
	// build and the kernel have it.
	Engine string
	// Buffered has files read through the system's page cache. Otherwise they are read past it (O_DIRECT), on file systems that can.
	Buffered bool
	// Incomplete has a table opened of which page files are missing: reads of their pages fail, one by one, so that OpenStores reads them from the next
	// store. Otherwise a missing file is an error of opening.
	Incomplete bool
	// Behind, if not nil, is a store with the same contents (Manifest.Same), from which the index comes if the directory's is missing or damaged. It stays the
	// caller's. The manifest of a directory that has lost it, or has it damaged, is written anew from there (Files.Restored), if the directory has no
	// generation of other contents: that may have updates which the store lacks, and is an error.
	Behind Store
}

// Files is a Store of page files.
type Files struct {
	dir      string
	folder   string
	manifest Manifest
	index    *index
	files    []*os.File // nil for one that is missing, or has no pages
	lacks    bool       // a file that has pages is missing
	restored bool       // the manifest was missing or damaged, and has been written anew
	places   []place    // by page
	engine   engine
	direct   bool

	open    context.Context // ends with Close
	closing context.CancelFunc
	mu      struct {
		sync.Mutex
		closed bool
	}
	reading sync.WaitGroup
}

// place is where a page begins: a file, and an offset in blocks.
type place struct {
	file  uint16
	block uint32
}

// Open opens a directory of page files as a table.
func Open(dir string, o FileOptions) (*Table, error) {
	f, err := OpenFiles(dir, o)
	if err != nil {
		return nil, err
	}
	return OpenStores(context.Background(), f)
}

// OpenFiles opens the generation of a directory of page files that was committed last. It stays readable when another is committed, on
// systems where open files outlive their names.
func OpenFiles(dir string, o FileOptions) (*Files, error) {
	if o.Depth < 0 || o.Depth > maxDepth {
		return nil, fmt.Errorf("pages: depth (%d) must be 1 to %d, or 0", o.Depth, maxDepth)
	}
	if o.Depth == 0 {
		o.Depth = 64
	}
	restored := false
	for tries := 0; ; tries++ {
		m, err := ReadManifest(dir)
		if err != nil && o.Behind != nil && !restored {
			if err := restoreManifest(dir, o.Behind, err); err != nil {
				return nil, err
			}
			restored = true
			m, err = ReadManifest(dir)
		}
		if err != nil {
			return nil, err
		}
		f, err := openGeneration(dir, m, o)
		if f != nil {
			f.restored = restored
		}
		if err == nil && !f.lacks || err != nil && !errors.Is(err, fs.ErrNotExist) || tries == 3 {
			return f, err
		}
		// A writer may have committed another generation meanwhile and dropped this one.
		if again, err2 := ReadManifest(dir); err2 != nil || again.Generation == m.Generation {
			return f, err
		}
		if f != nil {
			if err := f.Close(); err != nil {
				return nil, err
			}
		}
	}
}

// ReadManifest reads the manifest of a directory of page files. The error of a directory that has none wraps fs.ErrNotExist.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestFile)
	b, err := readSmall(path, maxManifest)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			if folders, _ := filepath.Glob(filepath.Join(dir, "g*", checkpointFile)); len(folders) > 0 {
				return nil, fmt.Errorf("pages: %s: the table is not complete: run pack again with the same arguments: %w", dir, err)
			}
		}
		return nil, fmt.Errorf("pages: %s: not a table of page files: %w", dir, err)
	}
	var m Manifest
	if err := m.UnmarshalBinary(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &m, nil
}

// regular returns what a file is, or an error if it is none that can be opened: opening a pipe would wait for its writer.
func regular(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: must be a regular file (%v)", path, info.Mode().Type())
	}
	return info, err
}

// readSmall reads a file of at most so many bytes.
func readSmall(path string, most int64) ([]byte, error) {
	info, err := regular(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s: %d bytes must be at most %d", path, info.Size(), most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func openGeneration(dir string, m *Manifest, o FileOptions) (_ *Files, err error) {
	f := &Files{dir: dir, folder: generationFolder(dir, m.Generation), manifest: *m}
	f.open, f.closing = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			f.closeFiles()
		}
	}()
	b, err := f.Part(context.Background(), PartIndex)
	if err != nil && o.Behind != nil {
		var other error
		if other = m.Same(o.Behind.Manifest()); other == nil {
			b, other = o.Behind.Part(context.Background(), PartIndex)
		}
		if other == nil {
			err = nil
		} else {
			err = errors.Join(err, fmt.Errorf("%s: %w", o.Behind.Name(), other))
		}
	}
	if err != nil {
		return nil, err
	}
	if f.index, err = newIndex(m, b); err != nil {
		return nil, fmt.Errorf("%s: %w", f.folder, err)
	}
	if f.places, err = readPlaces(f.folder, f.index); err != nil {
		return nil, err
	}
	used := placedFiles(f.places)
	f.files, f.direct = make([]*os.File, len(used)), !o.Buffered
	for i := range used {
		if !used[i] {
			continue
		}
		file, direct, err := openPages(pageFile(f.folder, i), f.direct)
		if o.Incomplete && errors.Is(err, fs.ErrNotExist) {
			f.lacks = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pages: %s: table %s: %w", dir, m.Name, err)
		}
		f.files[i], f.direct = file, direct
	}
	f.engine, err = newEngine(o.Engine, o.Depth, m.BufferBytes())
	return f, err
}

// Dir returns the directory, as it was given.
func (f *Files) Dir() string { return f.dir }

// Restored reports whether the directory's manifest was missing or damaged, and has been written anew from FileOptions.Behind.
func (f *Files) Restored() bool { return f.restored }

// Name implements Store.
func (f *Files) Name() string { return "files " + f.dir }

// Manifest implements Store.
func (f *Files) Manifest() *Manifest { return &f.manifest }

// Direct reports whether reads pass by the system's page cache, and Engine what reads, as FileOptions.Engine names it.
func (f *Files) Direct() bool   { return f.direct }
func (f *Files) Engine() string { return f.engine.name() }

// Part implements Store.
func (f *Files) Part(_ context.Context, p Part) ([]byte, error) {
	if f.manifest.Parts[p].Bytes == 0 {
		return nil, f.manifest.Check(p, nil)
	}
	path := filepath.Join(f.folder, p.String())
	b, err := readSmall(path, f.manifest.Parts[p].Bytes)
	if err != nil {
		return nil, err
	}
	if err := f.manifest.Check(p, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Close implements Store. It waits for reads that have begun, at most closeWait: their files are closed when they end.
func (f *Files) Close() error {
	f.mu.Lock()
	closed := f.mu.closed
	f.mu.closed = true
	f.mu.Unlock()
	if closed {
		return nil
	}
	f.closing() // calls of ReadPages return
	return within(closeWait, func() {
		f.reading.Wait()
		f.engine.close()
		f.closeFiles()
	})
}

// openPages opens a page file, past the page cache if so wanted and the file system can.
func openPages(path string, direct bool) (*os.File, bool, error) {
	if _, err := regular(path); err != nil {
		return nil, false, err
	}
	if direct {
		return directio.Open(path, os.O_RDONLY, 0)
	}
	f, err := os.Open(path)
	return f, false, err
}

func (f *Files) closeFiles() {
	for _, file := range f.files {
		if file != nil {
			file.Close()
		}
	}
}
