// Package pagetable opens tables of pages as commands, the C library and tensorcached are asked to: a directory of page files, a cluster, or a directory and a
// cluster behind it, with a log of updates that may be durable.
package pagetable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// Place says where the pages of a table are, and where its updates go.
type Place struct {
	// Path is a directory of page files, or the address of a cluster: redis://HOST:PORT[,HOST:PORT…][/TABLE], or rediss.
	Path string
	// Cold is the address of a cluster that has the same pages as the directory: those that the directory lacks, or has damaged, are read there. "": none.
	Cold string
	// Cache is a folder of this machine in which pages that were read from the cluster are kept, at most CacheBytes, 0 for DefaultCache. "": none.
	Cache      string
	CacheBytes int64
	// Log is the folder of updated rows; "" for delta in the directory, and of a cluster alone for memory.
	Log string
	// Durable has updates return when they are on the drive.
	Durable bool

	Logger *slog.Logger // nil: slog.Default()
}

// DefaultCache is Place.CacheBytes if that is 0.
const DefaultCache = 16 << 30

// Given reports whether the place is more than a path that cache.Open takes.
func (p *Place) Given() bool {
	return cluster.IsAddress(p.Path) || p.Cold != "" || p.Cache != "" || p.CacheBytes != 0 || p.Log != "" || p.Durable
}

// Check returns an error for settings that contradict each other. Nothing is opened.
func (p *Place) Check() error {
	alone := cluster.IsAddress(p.Path)
	switch {
	case alone && p.Cold != "":
		return fmt.Errorf("cold (%s) must not be set for a table in a cluster (%s)", p.Cold, p.Path)
	case p.Cold != "" && !cluster.IsAddress(p.Cold):
		return fmt.Errorf("cold (%s) must be the address of a cluster: redis://HOST:PORT[,HOST:PORT…][/TABLE], or rediss", p.Cold)
	case p.Cache != "" && !alone && p.Cold == "":
		return fmt.Errorf("cold cache (%s) must be of a table in a cluster", p.Cache)
	case p.CacheBytes != 0 && p.Cache == "":
		return fmt.Errorf("bytes of the cold cache (%d) must be of one that is given", p.CacheBytes)
	case p.CacheBytes < 0:
		return fmt.Errorf("bytes of the cold cache (%d) must not be negative", p.CacheBytes)
	case p.Durable && alone && p.Log == "":
		return errors.New("a durable table in a cluster must have a folder for its log of updates")
	}
	return nil
}

// Open returns the table for a cache. User, password and certificates of the cluster come from the environment: cluster.CredentialsFromEnvironment.
func (p *Place) Open(ctx context.Context) (cache.Table, error) {
	if err := p.Check(); err != nil {
		return cache.Table{}, fmt.Errorf("cache: table %s: %w", p.Path, err)
	}
	folder := p.Log
	if !cluster.IsAddress(p.Path) {
		if info, err := os.Stat(p.Path); err == nil && !info.IsDir() {
			return cache.Table{}, fmt.Errorf("cache: table %s: must be a directory of pages to be durable, to have a log of updates or a cluster behind it", p.Path)
		}
		if folder == "" {
			folder = delta.Folder(p.Path)
		}
		if p.Cold == "" {
			t, err := cache.Open(p.Path)
			return t.WithLog(folder, p.Durable), err
		}
	}
	of, err := p.Pages(ctx, p.keep)
	if err != nil {
		return cache.Table{}, err
	}
	t, err := cache.FromPages(of)
	if err != nil {
		return cache.Table{}, errors.Join(err, of.Close())
	}
	if folder != "" {
		t = t.WithLog(folder, p.Durable)
	}
	return t, nil
}

func (p *Place) logger() *slog.Logger {
	if p.Logger == nil {
		return slog.Default()
	}
	return p.Logger
}

// keep returns a store that keeps pages of a cluster in the folder Cache. An error closes the store.
func (p *Place) keep(s pages.Store) (pages.Store, error) {
	if p.Cache == "" {
		return s, nil
	}
	bytes := p.CacheBytes
	if bytes == 0 {
		bytes = DefaultCache
	}
	return cluster.NewLocal(s, p.Cache, bytes, p.Logger)
}

// Pages opens the pages that lie in a cluster, alone or behind a directory. before may return a store to be read in place of the cluster's; if it returns an
// error, it has closed that.
func (p *Place) Pages(ctx context.Context, before func(pages.Store) (pages.Store, error)) (_ *pages.Table, err error) {
	credentials, err := cluster.CredentialsFromEnvironment()
	if err != nil {
		return nil, err
	}
	o := cluster.Options{Credentials: credentials, Logger: p.Logger}
	address, dir := p.Cold, p.Path
	var unreadable error // of the directory's manifest
	if cluster.IsAddress(p.Path) {
		address, dir = p.Path, ""
	} else {
		var m *pages.Manifest
		if m, unreadable = pages.ReadManifest(dir); unreadable == nil {
			o.Table = m.Name
		} else if cluster.TableOf(address) == "" {
			return nil, fmt.Errorf("%w; cold (%s) must end in /TABLE for the manifest to be restored from there", unreadable, address)
		}
	}
	behind, err := cluster.Open(ctx, address, o)
	if err != nil {
		return nil, errors.Join(unreadable, err)
	}
	if dir == "" {
		store, err := before(behind)
		if err != nil {
			return nil, err
		}
		return pages.OpenStores(ctx, store)
	}
	files, err := pages.OpenFiles(dir, pages.FileOptions{Incomplete: true, Behind: behind}) // the cluster has all pages, and the index
	if err == nil {
		if err = files.Manifest().Same(behind.Manifest()); err != nil {
			err = fmt.Errorf("%s: %w; cachebench pack %s --out %s brings it up to the directory, and cachebench pack %s --out %s the directory up to it: copy from the one that has the later rows",
				behind.Name(), err, dir, address, address, dir)
			err = errors.Join(err, files.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, behind.Close())
	}
	if files.Restored() {
		p.logger().Warn("the manifest of a table's directory was missing or damaged, and has been restored from the cluster: pages that the directory lacks are read there, until cachebench pack writes them anew",
			slog.String("table", files.Manifest().Name), slog.String("directory", dir), slog.String("cluster", behind.Name()), slog.Uint64("generation", files.Manifest().Generation),
			slog.Any("error", unreadable))
	}
	store, err := before(behind)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return pages.OpenStores(ctx, files, store)
}
