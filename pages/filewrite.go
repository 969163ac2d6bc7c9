package pages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/directio"
	"github.com/tensorcache/tensorcache/internal/filelock"
)

// FileWriter is a Writer of page files. A Pack that was interrupted, by a full disk or a crash, goes on where it was.
type FileWriter struct {
	dir, folder string
	generation  uint64
	committed   uint64 // generation that readers see; 0: none
	lock        *os.File
	made        bool // whether the directory was made for this writer

	begun      bool
	file       *os.File // of the pages that are written; nil: none yet
	number     int      // of the file
	at         placer
	next       uint32    // page
	from       *Files    // the generation whose pages this one has, too; nil: none
	places     placeList // of the pages so far, if from is set
	buffer     []byte    // pages that are not in the file yet, the last of which ends at at.end
	unsynced   int64
	synced     time.Time   // when the last sync began
	checkpoint *checkpoint // nil: not resumable
	background chan error  // of the sync that is under way; nil: none
}

// writeBytes is how many bytes of pages are written at a time.
const writeBytes = 4 << 20

// Pages are made durable, beside the packing of more, when there are so many bytes of them, or so long after the last time. An interrupted Pack
// does syncLag times as many bytes again at most. Tests set syncBytes.
var syncBytes int64 = 32 << 20

const (
	syncEvery = time.Second
	syncLag   = 4
)

// CreateFiles returns a writer of the next generation of the table in a directory, which is made if there is none. Only one writer at a time
// can have a directory; it must be empty or a table's.
func CreateFiles(dir string) (_ *FileWriter, err error) {
	_, err = os.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	w := &FileWriter{dir: dir, lock: lock, made: made}
	defer func() {
		if err != nil {
			w.unlock()
		}
	}()
	m, err := ReadManifest(dir)
	switch {
	case err == nil:
		w.committed = m.Generation
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	w.generation = w.committed + 1
	w.folder = generationFolder(dir, w.generation)
	return w, w.clean()
}

// lockDir takes the lock of a directory that is empty or a table's.
func lockDir(dir string) (*os.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	known := len(entries) == 0
	for _, e := range entries {
		known = known || e.Name() == manifestFile || e.Name() == lockFile || generationOf(e.Name()) > 0
	}
	if !known {
		return nil, fmt.Errorf("pages: %s: must be a new or empty directory, or one of page files (it has %s)", dir, entries[0].Name())
	}
	f, err := filelock.Try(filepath.Join(dir, lockFile))
	switch {
	case filelock.Held(err):
		return nil, fmt.Errorf("pages: %s: another process is writing to it: %w", dir, err)
	case err != nil:
		return nil, fmt.Errorf("pages: %s: cannot be written to: %w", dir, err)
	}
	return f, nil
}

// generationOf returns the generation that a folder of this name is of, 0 for none.
func generationOf(name string) uint64 {
	digits, ok := strings.CutPrefix(name, "g")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || digits != strconv.FormatUint(n, 10) {
		return 0
	}
	return n
}

// clean removes generations that no reader will open and that cannot be resumed.
func (w *FileWriter) clean() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if g := generationOf(e.Name()); g > 0 && g != w.committed && g != w.generation {
			os.RemoveAll(filepath.Join(w.dir, e.Name())) // what is left will be tried again
		}
	}
	return nil
}

// Generation implements Writer.
func (w *FileWriter) Generation() uint64 { return w.generation }

// start makes the generation's folder, empty.
func (w *FileWriter) start() error {
	if err := os.RemoveAll(w.folder); err != nil {
		return err
	}
	w.begun = true
	if err := os.Mkdir(w.folder, 0o777); err != nil {
		return err
	}
	return atomicfile.SyncFolder(w.dir)
}

// WritePages implements Writer.
func (w *FileWriter) WritePages(ctx context.Context, first uint32, pages [][]byte) error {
	if !w.begun {
		if err := w.start(); err != nil {
			return err
		}
	}
	if first != w.next {
		return fmt.Errorf("pages: %s: first page (%d) must be %d", w.dir, first, w.next)
	}
	for _, p := range pages {
		file, offset := w.at.place(len(p))
		if w.from != nil {
			w.places.add(place{uint16(file), uint32(offset / block)}, len(p))
		}
		if w.file == nil || file != w.number {
			if err := w.nextFile(file); err != nil {
				return err
			}
		}
		w.buffer = append(w.buffer, p...)
		w.buffer = append(w.buffer, make([]byte, directio.Blocks(len(p))*block-len(p))...)
		w.next++
		if len(w.buffer) >= writeBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// nextFile ends the file that is written and makes the one of this number.
func (w *FileWriter) nextFile(number int) (err error) {
	if w.file != nil {
		if err := w.flush(); err != nil {
			return err
		}
		if err := errors.Join(w.join(), syncFile(w.file), w.file.Close()); err != nil {
			return err
		}
	}
	w.number = number
	flag := os.O_RDWR | os.O_CREATE | os.O_TRUNC
	if w.from != nil {
		flag |= os.O_EXCL // what is there is a file of the generation before
	}
	if w.file, err = os.OpenFile(pageFile(w.folder, number), flag, 0o666); err != nil {
		return err
	}
	return atomicfile.SyncFolder(w.folder)
}

// flush writes the buffered pages to the file.
func (w *FileWriter) flush() error {
	n, err := writeTo(w.file, w.buffer)
	w.buffer = w.buffer[:copy(w.buffer, w.buffer[n:])]
	w.unsynced += int64(n)
	return err
}

// Tests have one of each that fails.
var (
	writeTo       = (*os.File).Write
	syncFile      = (*os.File).Sync
	writeManifest = atomicfile.Write
)

// sync makes the pages durable that were written, and then the checkpoint that says so.
func (w *FileWriter) sync() error {
	if err := w.join(); err != nil {
		return err
	}
	if w.file != nil {
		if err := w.flush(); err != nil {
			return err
		}
		w.unsynced = 0
	}
	if c := w.checkpoint; c != nil {
		groups := c.buffer
		c.buffer = nil
		return c.append(w.file, groups)
	}
	if w.file != nil {
		return syncFile(w.file)
	}
	return nil
}

// Commit implements Writer. Generations before the one that readers saw so far are removed, and that one, too, where open files outlive
// their names.
func (w *FileWriter) Commit(ctx context.Context, m *Manifest, parts *Parts) error {
	if m.Pages != w.next || m.Generation != w.generation {
		return fmt.Errorf("pages: %s: %d pages of generation %d were written, the manifest has %d of %d", w.dir, w.next, w.generation, m.Pages, m.Generation)
	}
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	if !w.begun { // a table without pages
		if err := w.start(); err != nil {
			return err
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	if w.from != nil {
		if err := w.commitPlaces(); err != nil {
			return err
		}
	}
	for p, contents := range parts {
		if err := m.Check(Part(p), contents); err != nil {
			return err
		}
		if len(contents) > 0 {
			if err := writePart(filepath.Join(w.folder, Part(p).String()), contents); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(atomicfile.SyncFolder(w.folder), ctx.Err()); err != nil {
		return err
	}
	if err := writeManifest(filepath.Join(w.dir, manifestFile), b); err != nil {
		if now, _ := ReadManifest(w.dir); now != nil && now.Generation == w.generation {
			w.committed = w.generation // readers see it already, so Abort must not remove it
		}
		return err
	}
	w.committed = w.generation
	w.closeFiles()
	os.Remove(filepath.Join(w.folder, checkpointFile))
	w.clean()
	return w.lock.Close()
}

// writePart writes a file that is no one's before the manifest names its folder.
func writePart(path string, contents []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = writeTo(f, contents)
	return errors.Join(err, syncFile(f), f.Close())
}

// Abort implements Writer. It keeps what can be resumed, and a directory that would be left empty is removed.
func (w *FileWriter) Abort() error {
	visible := w.committed == w.generation
	if w.checkpoint != nil && !visible {
		w.sync() // what cannot be written will be packed again
	}
	w.closeFiles()
	if w.begun && w.checkpoint == nil && !visible {
		os.RemoveAll(w.folder)
	}
	w.begun = false
	w.unlock()
	return nil
}

// unlock gives up the lock. A directory that has nothing else is left as it was found: without the lock's file, and not at all if it was made for this writer.
func (w *FileWriter) unlock() {
	if entries, err := os.ReadDir(w.dir); err == nil && len(entries) == 1 && entries[0].Name() == lockFile {
		os.Remove(filepath.Join(w.dir, lockFile)) // while it is locked: see filelock.Try
		if w.made {
			os.Remove(w.dir)
		}
	}
	w.lock.Close()
}

func (w *FileWriter) closeFiles() {
	w.join()
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
	if w.checkpoint != nil {
		w.checkpoint.file.Close()
	}
}
