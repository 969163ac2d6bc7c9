package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tensorcache/tensorcache/bench/dataset"
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
	return dataset.FromPages(func() (*pages.Table, error) {
		ctx := context.Background()
		o := cluster.Options{Credentials: credentials, Logger: c.Logger}
		var stores []pages.Store
		if c.Features != "" {
			files, err := pages.OpenFiles(c.Features, pages.FileOptions{Incomplete: true}) // the cluster has all pages
			if err != nil {
				return nil, err
			}
			stores, o.Table = append(stores, files), files.Manifest().Name
		}
		behind, err := cluster.Open(ctx, c.ColdPages, o)
		if err != nil {
			for _, s := range stores {
				err = errors.Join(err, s.Close())
			}
			return nil, err
		}
		return pages.OpenStores(ctx, append(stores, behind)...)
	})
}
