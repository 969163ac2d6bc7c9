package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// loadFeatures loads the table of Features, of ColdPages, or of files and a cluster behind them.
func (c *Config) loadFeatures() (*dataset.Table, error) {
	if c.ColdPages == "" {
		return dataset.Load(c.Features)
	}
	if info, err := os.Stat(c.Features); c.Features != "" && (err != nil || !info.IsDir()) {
		return nil, errors.Join(err, fmt.Errorf("--features (%s) must be a directory of pages beside --cold (%s)", c.Features, c.ColdPages))
	}
	place := pagetable.Place{Path: c.ColdPages, Logger: c.Logger}
	if c.Features != "" {
		place.Path, place.Cold = c.Features, c.ColdPages
	}
	kept := &keptPages{folder: c.ColdCache}
	before := func(s pages.Store) (pages.Store, error) { return s, nil } // the first opening is for verification, the others are for caches
	open := func() (*pages.Table, error) {
		t, err := place.Pages(context.Background(), before)
		before = func(s pages.Store) (pages.Store, error) { return kept.before(s, c) }
		return t, err
	}
	if c.Features == "" {
		return dataset.FromPages(open)
	}
	return dataset.FromPages(func() (*pages.Table, error) { return delta.OpenTable(c.Features, delta.Folder(c.Features), open) })
}

// keptPages is the folder of ColdCache, which one store of the process can have at a time.
type keptPages struct {
	folder string
	mu     sync.Mutex
}

// before returns a store that keeps pages of another one in the folder, or that one itself if there is no folder or another store has it. An error closes it.
func (k *keptPages) before(s pages.Store, c *Config) (pages.Store, error) {
	if k.folder == "" || !k.mu.TryLock() {
		return s, nil
	}
	most, err := setting.Bytes("--cold-cache-bytes", cmp.Or(c.ColdCacheBytes, defaultColdCache))
	if err == nil {
		if s, err = cluster.NewLocal(s, k.folder, most, c.Logger); err == nil {
			return &keeping{s, sync.OnceFunc(k.mu.Unlock)}, nil
		}
	} else {
		err = errors.Join(err, s.Close())
	}
	k.mu.Unlock()
	return nil, err
}

// keeping is a store that has the folder.
type keeping struct {
	pages.Store
	giveBack func()
}

// Close implements pages.Store.
func (k *keeping) Close() error {
	defer k.giveBack()
	return k.Store.Close()
}

const defaultColdCache = "16GiB"
