package cache

import (
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
)

// Snapshot writes the row numbers of all cached rows, 8 bytes each, to a file for AdmissionOptions.Restore. It writes a hidden file beside it
// and renames that when it is complete and on disk. So, even after a crash, the file at path is either the old one or the new one. Rows that
// are admitted or evicted meanwhile may be listed or not. Snapshot is safe for concurrent use and waits only for the disk.
func (c *Cache) Snapshot(path string) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	_, watch := c.watch.Start(context.Background(), "snapshot", "")
	defer func() { watch.End(err) }()
	if path == "" {
		return errors.New("cache: snapshot: path must not be empty")
	}
	bytes, err := c.owner.snapshot(path)
	if bytes > 0 {
		watch.Set(observe.KeyChangedBytes.Int(bytes))
	}
	return err
}
