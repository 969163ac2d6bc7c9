package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// loadFeatures loads the table of Features, of ColdPages, or of files and a cluster behind them.
func (c *Config) loadFeatures() (*dataset.Table, error) {
	if c.ColdPages == "" {
		return dataset.Load(c.Features)
	}
	if info, err := os.Stat(c.Features); c.Features != "" && (err != nil || !info.IsDir()) {
		return nil, errors.Join(err, fmt.Errorf("--features (%s) must be a directory of pages beside --cold (%s)", c.Features, c.ColdPages))
	}
	credentials, err := cluster.CredentialsFromEnvironment()
	if err != nil {
		return nil, err
	}
	kept := &keptPages{folder: c.ColdCache}
	first := true
	return dataset.FromPages(func() (_ *pages.Table, err error) {
		ctx := context.Background()
		o := cluster.Options{Credentials: credentials, Logger: c.Logger}
		if c.Features != "" {
			m, err := pages.ReadManifest(c.Features)
			if err != nil {
				return nil, err
			}
			o.Table = m.Name
		}
		var stores []pages.Store
		var behind pages.Store
		if behind, err = cluster.Open(ctx, c.ColdPages, o); err != nil {
			return nil, err
		}
		if c.Features != "" {
			files, err := pages.OpenFiles(c.Features, pages.FileOptions{Incomplete: true, Behind: behind}) // the cluster has all pages, and the index
			if err != nil {
				return nil, errors.Join(err, behind.Close())
			}
			stores = append(stores, files)
		}
		if !first { // the first opening is for verification, the others are for caches
			behind, err = kept.before(behind, c)
		}
		if err != nil {
			for _, s := range stores {
				err = errors.Join(err, s.Close())
			}
			return nil, err
		}
		first = false
		return pages.OpenStores(ctx, append(stores, behind)...)
	})
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
