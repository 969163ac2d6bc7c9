package experiment

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// noUpdates returns an error if a directory of page files has updated rows that are not merged into its pages, or if a process that may
// update rows has it open: the updates would replace rows of the table that is packed.
func noUpdates(out string) error {
	m, err := pages.ReadManifest(out)
	if err != nil {
		return nil // there is no table yet; what is wrong with the directory is found by who writes to it
	}
	folder := filepath.Join(out, "delta")
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
