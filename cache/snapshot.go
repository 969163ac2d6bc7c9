package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
)

// Snapshot writes which rows are cached, not the rows, to a file, for Options.Restore: 8 bytes a row. It takes the file's
// place only once it is complete and on disk: at any moment, through any crash, the file is the old one or the new one. A
// hidden file beside it is written meanwhile. Rows that are admitted or evicted meanwhile may be in it or not. It is safe for concurrent use, and waits for nothing but the disk.
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
	bytes, err := c.writer.WriteSnapshot(path)
	watch.Set(observe.KeyChangedBytes.Int(bytes))
	if err != nil {
		return fmt.Errorf("cache: snapshot: %w", err)
	}
	c.watch.Log.Info("snapshot written", slog.String("path", path), slog.Int("bytes", bytes))
	return nil
}
