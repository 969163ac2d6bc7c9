package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/tensorcache/tensorcache/hashmap"
)

// snapshotMagic begins a snapshot; its last byte is the format's version.
const snapshotMagic = "TCSNAP\x00\x01"

// snapshotHeader is the length of magic and number of tables, and snapshotTable that of a table's fields before its name.
const (
	snapshotHeader = 16
	snapshotTable  = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshots serialises Snapshot.
type snapshots struct {
	sync.Mutex
	restored int64 // rows that New took from one
	err      error // why New did not
}

// Snapshot writes which rows are cached, not the rows, to a file, for Options.Restore: 8 bytes a row. It takes the file's
// place only once it is complete and on disk: at any moment, through any crash, the file is the old one or the new one. A
// file of that name with ".tmp" behind it is written meanwhile; two caches must not write to one path at once. Rows that
// are admitted or evicted meanwhile may be in it or not. It is safe for concurrent use, and waits for nothing but the disk.
func (c *Cache) Snapshot(path string) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	_, watch := c.telemetry.start(context.Background(), "snapshot", "")
	defer func() { watch.end(err) }()
	c.snapshots.Lock()
	defer c.snapshots.Unlock()
	contents := c.encodeSnapshot()
	watch.set(keyChangedBytes.Int(len(contents)))
	if err := writeAtomically(path, contents); err != nil {
		return fmt.Errorf("cache: snapshot: %w", err)
	}
	c.telemetry.opts.Logger.Info("snapshot written", c.logName(), slog.String("path", path), slog.Int("bytes", len(contents)))
	return nil
}

// writeAtomically replaces a file's contents.
func writeAtomically(path string, contents []byte) (err error) {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(path + ".tmp")
		}
	}()
	if _, err := f.Write(contents); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	// Not every file system lets folders be synced; the rename itself is atomic on all.
	dir.Sync()
	return dir.Close()
}

// encodeSnapshot returns a snapshot of the admitted rows.
func (c *Cache) encodeSnapshot() []byte {
	ch := &c.changes
	rows := make([][]uint64, len(c.tables))
	var updated []uint64
	for key, l := range ch.mu.index.All() { // may be read beside its writer
		if c.overlay.has(l) {
			updated = append(updated, key)
			continue
		}
		table, row := hashmap.SplitKey(key)
		rows[table] = append(rows[table], uint64(row))
	}
	ch.mu.Lock()
	for _, key := range updated {
		l := ch.mu.index.Find(key)
		if f := ch.mu.fresh[key]; f != nil && f.admitted || f == nil && l.Valid() { // it may have arrived since
			table, row := hashmap.SplitKey(key)
			rows[table] = append(rows[table], uint64(row))
		}
	}
	ch.mu.Unlock()
	order := binary.LittleEndian
	b := order.AppendUint64([]byte(snapshotMagic), uint64(len(c.tables)))
	b = order.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for i, t := range c.tables {
		from := len(b)
		b = order.AppendUint64(b, uint64(len(t.name)))
		b = order.AppendUint64(b, uint64(t.tier.RowBytes()))
		b = order.AppendUint64(b, uint64(t.dtype))
		b = order.AppendUint64(b, uint64(len(rows[i])))
		b = append(b, t.name...)
		b = append(b, AsBytes(rows[i])...)
		b = order.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	}
	return b
}

// decodeSnapshot returns the keys of a snapshot of tables like these. Row numbers may be beyond the tables'.
func decodeSnapshot(b []byte, tables []*table) (keys []uint64, err error) {
	order, rest := binary.LittleEndian, b
	fail := func(format string, args ...any) ([]uint64, error) {
		return nil, fmt.Errorf("at byte %d: "+format, append([]any{len(b) - len(rest)}, args...)...)
	}
	checked := func(n int) bool { return crc32.Checksum(rest[:n], castagnoli) == order.Uint32(rest[n:]) }
	if len(rest) < snapshotHeader+4 {
		return fail("header: %w", io.ErrUnexpectedEOF)
	}
	if string(rest[:8]) != snapshotMagic {
		return fail("not a snapshot of this version (%q)", rest[:8])
	}
	if !checked(snapshotHeader) {
		return fail("header: wrong checksum")
	}
	if n := order.Uint64(rest[8:]); n != uint64(len(tables)) {
		return fail("tables (%d) must be the cache's %d", n, len(tables))
	}
	rest = rest[snapshotHeader+4:]
	for i, t := range tables {
		if len(rest) < snapshotTable {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		name, rowBytes, dtype, n := order.Uint64(rest), order.Uint64(rest[8:]), order.Uint64(rest[16:]), order.Uint64(rest[24:])
		if name > math.MaxInt32 || n > uint64(len(rest))/8 || uint64(len(rest)) < snapshotTable+name+8*n+4 {
			return fail("table %d: %w", i, io.ErrUnexpectedEOF)
		}
		size := int(snapshotTable + name + 8*n)
		if !checked(size) {
			return fail("table %d: wrong checksum", i)
		}
		if is := string(rest[snapshotTable:][:name]); is != t.name || rowBytes != uint64(t.tier.RowBytes()) || dtype != uint64(t.dtype) {
			return fail("table %d: %s, rows of %d bytes of %v, must be the cache's: %s, rows of %d bytes of %v",
				i, is, rowBytes, DType(dtype), t.name, t.tier.RowBytes(), t.dtype)
		}
		for at := snapshotTable + int(name); at < size; at += 8 {
			row := order.Uint64(rest[at:])
			if row >= hashmap.MaxRows {
				return fail("table %d: row number (%d)", i, row)
			}
			keys = append(keys, hashmap.Key(i, int64(row)))
		}
		rest = rest[size+4:]
	}
	if len(rest) != 0 {
		return fail("%d bytes too many", len(rest))
	}
	return keys, nil
}

// restore returns the keys of the snapshot that the options name, and notes why there are none.
func (c *Cache) restore() []uint64 {
	if c.opts.Restore == "" {
		return nil
	}
	b, err := os.ReadFile(c.opts.Restore)
	if err == nil {
		var keys []uint64
		if keys, err = decodeSnapshot(b, c.tables); err == nil {
			return keys
		}
		err = fmt.Errorf("%s: damaged or another cache's: %w", c.opts.Restore, err)
	}
	c.snapshots.err = fmt.Errorf("cache: snapshot: %w", err)
	return nil
}
