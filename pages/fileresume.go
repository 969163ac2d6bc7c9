package pages

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

// join waits for the sync in the background.
func (w *FileWriter) join() error {
	if w.background == nil {
		return nil
	}
	err := <-w.background
	w.background = nil
	return err
}

// resume implements resumer.
func (w *FileWriter) resume(key [sha256.Size]byte) (*resumable, error) {
	path := filepath.Join(w.folder, checkpointFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil // begin makes everything anew, and says what is wrong with the folder
	}
	r, length := parseCheckpoint(b, key)
	if r == nil {
		return nil, nil
	}
	file, end, ok := w.written(r)
	if !ok {
		return nil, nil
	}
	// Files behind the last page that is known are not needed, nor is the rest of the file that it lies in.
	for i := file + 1; ; i++ {
		if os.Remove(pageFile(w.folder, i)) != nil {
			break
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	w.begun, w.next, w.number, w.at = true, uint32(len(r.pages)), file, placer{file, end}
	w.checkpoint = &checkpoint{file: f}
	if err := f.Truncate(length); err != nil {
		return nil, err
	}
	if _, err := f.Seek(length, 0); err != nil {
		return nil, err
	}
	if len(r.pages) == 0 {
		w.at = placer{}
		return r, nil
	}
	if w.file, err = os.OpenFile(pageFile(w.folder, file), os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := w.file.Truncate(end); err != nil {
		return nil, err
	}
	_, err = w.file.Seek(end, 0)
	return r, err
}

// written returns where the last page of a checkpoint ends; ok says that all page files are long enough.
func (w *FileWriter) written(r *resumable) (file int, end int64, ok bool) {
	var p placer
	long := func() bool {
		info, err := os.Stat(pageFile(w.folder, p.file))
		return err == nil && info.Size() >= p.end
	}
	for _, page := range r.pages {
		before := p
		p.place(int(page.length))
		if p.file != before.file {
			now := p
			if p = before; !long() {
				return 0, 0, false
			}
			p = now
		}
	}
	return p.file, p.end, len(r.pages) == 0 || long()
}

// begin implements resumer.
func (w *FileWriter) begin(r *resumable) error {
	if err := w.start(); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(w.folder, checkpointFile))
	if err != nil {
		return err
	}
	w.checkpoint = &checkpoint{file: f}
	return errors.Join(w.checkpoint.append(nil, encodeCheckpoint(r)), atomicfile.SyncFolder(w.folder))
}

// wrote implements resumer.
func (w *FileWriter) wrote(g *packedGroup, pages []indexPage) error {
	w.checkpoint.add(g, pages)
	waiting := w.unsynced + int64(len(w.buffer))
	if waiting < syncBytes && time.Since(w.synced) < syncEvery {
		return nil
	}
	if w.background != nil && waiting < syncLag*syncBytes {
		select {
		case err := <-w.background:
			w.background = nil
			if err != nil {
				return err
			}
		default:
			return nil
		}
	}
	if err := errors.Join(w.join(), w.flush()); err != nil {
		return err
	}
	w.unsynced, w.synced = 0, time.Now()
	w.background = make(chan error, 1)
	go func(file *os.File, c *checkpoint, groups []byte, ended chan<- error) {
		ended <- c.append(file, groups)
	}(w.file, w.checkpoint, w.checkpoint.buffer, w.background)
	w.checkpoint.buffer = nil
	return nil
}
