package delta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tensorcache/tensorcache/internal/atomicfile"
)

// segment is a file of the log.
type segment struct {
	number uint64
	bytes  int64 // guarded by Log.mu
	file   *os.File
	closed bool         // guarded by using
	fault  error        // of the sync when it was closed; guarded by using
	using  sync.RWMutex // held for reading while the file is read
}

func segmentName(number uint64) string { return fmt.Sprintf("%020d.log", number) }

// listSegments returns the numbers of the segments in a folder, ascending.
func listSegments(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".log")
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && segmentName(n) == e.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// createSegment makes a segment's file. It is there with its whole header, or not at all, after a crash.
func createSegment(dir string, h header) (_ *segment, err error) {
	path := filepath.Join(dir, segmentName(h.number))
	temporary := path + ".new"
	f, err := os.Create(temporary)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // a segment that stayed would not fit batches that are appended to the one before
			f.Close()
			os.Remove(temporary)
			os.Remove(path)
		}
	}()
	if _, err := writeAt(f, h.encode(), 0); err != nil {
		return nil, err
	}
	if err := syncFile(f); err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, err
	}
	if err := syncFolder(dir); err != nil {
		return nil, err
	}
	return &segment{number: h.number, bytes: segmentHeader, file: f}, nil
}

// Tests have one of each that fails, or that ends the process.
var (
	writeAt    = (*os.File).WriteAt
	syncFile   = func(f *os.File) error { return atomicfile.SyncFile(f) }
	syncFolder = atomicfile.SyncFolder
)

// close closes the file once no one reads it, and syncs it before if so wanted.
func (s *segment) close(sync bool) error {
	s.using.Lock()
	defer s.using.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if sync {
		s.fault = syncFile(s.file)
	}
	return errors.Join(s.fault, s.file.Close())
}

// read reads bytes of the segment.
func (s *segment) read(b []byte, at int64) error {
	s.using.RLock()
	defer s.using.RUnlock()
	if s.closed {
		return os.ErrClosed
	}
	if _, err := s.file.ReadAt(b, at); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
