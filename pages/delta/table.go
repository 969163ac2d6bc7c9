package delta

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tensorcache/tensorcache/pages"
)

// Folder returns where the log of a directory of page files is, unless another folder is named.
func Folder(dir string) string { return filepath.Join(dir, "delta") }

// OpenTable opens a table of a directory of page files, by open, with the rows of the log in a folder in their newest versions, as they are now. Neither
// pages nor log change, and another process may have the log.
func OpenTable(dir, folder string, open func() (*pages.Table, error)) (*pages.Table, error) {
	for tries := 0; ; tries++ {
		t, err := open()
		if err != nil {
			return nil, err
		}
		l, err := Open(folder, t.Manifest(), Options{ReadOnly: true})
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.Overlay(newest{l})
		// If a merge was committed after the pages were opened, the log may have lost rows that these pages do not have yet.
		m, err := pages.ReadManifest(dir)
		if err == nil && m.Generation == t.Manifest().Generation {
			return t, nil
		}
		if err == nil && tries == readAgain {
			err = fmt.Errorf("delta: %s: updates are merged into its pages again and again", dir)
		}
		if closed := t.Close(); err != nil || closed != nil {
			return nil, errors.Join(err, closed)
		}
	}
}

// newest is a log as a pages.Newer.
type newest struct{ l *Log }

func (n newest) Newest(row int64, buf []byte) (stored []byte, compressed, ok bool, err error) {
	r, ok, err := n.l.Read(row, buf)
	return r.Stored, r.Compressed, ok, err
}

func (n newest) Close() error { return n.l.Close() }

// Unmerged returns how many rows the log of a directory of page files has that its pages do not have. Nothing changes, and another process may have the log.
func Unmerged(dir string) (rows int64, err error) {
	m, err := pages.ReadManifest(dir)
	if err != nil {
		return 0, err
	}
	l, err := Open(Folder(dir), m, Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Stats().Rows, nil
}
