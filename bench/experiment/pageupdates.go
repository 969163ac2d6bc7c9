package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// noUpdates returns an error if a directory of page files has updated rows that are not merged into its pages, or if a process that may
// update rows has it open: the updates would replace rows of the table that is packed.
func noUpdates(out string) error {
	m, err := pages.ReadManifest(out)
	if err != nil {
		return nil // there is no table yet; what is wrong with the directory is found by who writes to it
	}
	folder := delta.Folder(out)
	if _, err := os.Stat(folder); err != nil {
		return nil
	}
	l, err := delta.Open(folder, m, delta.Options{})
	if err != nil {
		return fmt.Errorf("--out (%s): %w", out, err)
	}
	defer l.Close()
	if rows := l.Stats().Rows; rows > 0 {
		return fmt.Errorf("--out (%s) has %d updated rows in %s that are not in its pages: they would replace rows of the new table; remove that folder to lose them", out, rows, folder)
	}
	return nil
}

// merged returns an error if a place of pages is a directory that has updated rows which are not merged into its pages.
func merged(from string) error {
	if cluster.IsAddress(from) {
		return nil
	}
	rows, err := delta.Unmerged(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // who opens the pages says what is missing
	}
	if err != nil {
		return err
	}
	if rows > 0 {
		return fmt.Errorf("%s has %d updated rows in its log that are not in its pages: cachebench pack merge %s", from, rows, from)
	}
	return nil
}
