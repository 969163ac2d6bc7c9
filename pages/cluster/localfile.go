package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/internal/directio"
	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/pages"
)

// The files of a local page cache: docs/format/cluster.md. One has slots of equal length for pages, the other an entry for each slot.
const (
	localMagic  = "TCPCACH\x01"
	localHeader = 64
	localEntry  = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry says what a slot holds.
type entry struct {
	page, length, sum uint32
}

// put writes an entry, with a checksum that tells it from what was never written.
func (e entry) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, e.page)
	le.PutUint32(b[4:], e.length)
	le.PutUint32(b[8:], e.sum)
	le.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
}

func parseEntry(b []byte) (entry, bool) {
	le := binary.LittleEndian
	return entry{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])}, le.Uint32(b[12:]) == crc32.Checksum(b[:12], castagnoli)
}

// localFiles are the two files. Slots may be read and written at the same time: who reads one compares the checksum.
type localFiles struct {
	data, index *os.File
	slotBytes   int
	slots       int
	readAt      func(b []byte, offset int64) (n int, err error) // of data; tests have one that hangs
}

// openLocalFiles opens or makes the files of a table in a folder. entries are those of an earlier process, if it cached the same table.
func openLocalFiles(folder string, m *pages.Manifest, slotCount int) (_ *localFiles, entries map[int]entry, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, nil, err
	}
	f := &localFiles{slotBytes: m.BufferBytes(), slots: slotCount}
	defer func() {
		if err != nil {
			f.close() //nolint:errcheck // there is an error already
		}
	}()
	if f.index, err = filelock.Try(filepath.Join(folder, m.Name+".index")); err != nil {
		if fault, ok := errors.AsType[*os.PathError](err); ok && fault.Op == "lock" {
			err = fmt.Errorf("another process has its pages there: %w", err)
		}
		return nil, nil, err
	}
	if f.data, _, err = directio.Open(filepath.Join(folder, m.Name+".pages"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, nil, err
	}
	f.readAt = f.data.ReadAt
	header, err := f.header(m)
	if err != nil {
		return nil, nil, err
	}
	old, err := io.ReadAll(io.LimitReader(f.index, localHeader+int64(localEntry)*int64(slotCount)))
	if err != nil {
		return nil, nil, err
	}
	if len(old) < localHeader || string(old[:localHeader]) != string(header) { // another table, generation or size, or none
		if err := errors.Join(f.index.Truncate(0), f.data.Truncate(0)); err != nil {
			return nil, nil, err
		}
		_, err = f.index.WriteAt(header, 0)
		return f, nil, err
	}
	entries = map[int]entry{}
	for slot, b := 0, old[localHeader:]; len(b) >= localEntry; slot, b = slot+1, b[localEntry:] {
		if e, ok := parseEntry(b); ok && e.page < m.Pages && int(e.length) <= f.slotBytes {
			entries[slot] = e
		}
	}
	return f, entries, nil
}

// header is that of the index: which pages the slots are for. Generations of the same contents are alike.
func (f *localFiles) header(m *pages.Manifest) ([]byte, error) {
	same := *m
	same.Generation = 1
	text, err := same.MarshalBinary()
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, localHeader), localMagic...)
	b = le.AppendUint32(b, uint32(f.slotBytes))
	b = le.AppendUint64(b, uint64(f.slots))
	sum := sha256.Sum256(text)
	b = append(b, sum[:]...)
	return append(b, make([]byte, localHeader-len(b))...), nil
}

// read reads a page to memory of slotBytes that begins at a multiple of directio.Block. It returns false if the slot does not hold the page (any more).
func (f *localFiles) read(slot int, e entry, into []byte) bool {
	n := directio.Blocks(int(e.length)) * directio.Block
	got, err := f.readAt(into[:n], int64(slot)*int64(f.slotBytes))
	return (err == nil || errors.Is(err, io.EOF)) && got >= int(e.length) && crc32.Checksum(into[:e.length], castagnoli) == e.sum
}

// write writes a page, whose memory is like that of read, and its entry.
func (f *localFiles) write(slot int, e entry, page []byte) error {
	n := directio.Blocks(int(e.length)) * directio.Block
	if _, err := f.data.WriteAt(page[:n], int64(slot)*int64(f.slotBytes)); err != nil {
		return err
	}
	var b [localEntry]byte
	e.put(b[:])
	_, err := f.index.WriteAt(b[:], localHeader+int64(slot)*localEntry)
	return err
}

// release gives up the lock of the files. Nothing may be written any more; slots can be read.
func (f *localFiles) release() error {
	index := f.index
	f.index = nil
	return index.Close()
}

func (f *localFiles) close() error {
	var errs []error
	for _, file := range []*os.File{f.data, f.index} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(errs...)
}
