package experiment

import (
	"context"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// clusterOptions are those of every cluster: credentials come from the environment. table is the table's name, "" for that of the address, or
// for the only one that the cluster has.
func clusterOptions(table string) (cluster.Options, error) {
	credentials, err := cluster.CredentialsFromEnvironment()
	return cluster.Options{Table: table, Credentials: credentials}, err
}

// openWriter returns a writer of the next generation of a table at a place: a directory, or a cluster.
func openWriter(ctx context.Context, out, table string) (pages.Writer, error) {
	if !cluster.IsAddress(out) {
		return pages.CreateFiles(out)
	}
	o, err := clusterOptions(table)
	if err != nil {
		return nil, err
	}
	return cluster.NewWriter(ctx, out, o)
}

// openStore opens the table at a place.
func openStore(ctx context.Context, from string) (pages.Store, error) {
	if !cluster.IsAddress(from) {
		return pages.OpenFiles(from, pages.FileOptions{Incomplete: true}) // reads of missing files name the pages
	}
	return OpenCluster(ctx, from, "")
}

// OpenCluster opens a table of a cluster. table is its name, "" for that of the address, or for the only one that the cluster has.
func OpenCluster(ctx context.Context, url, table string) (*cluster.Store, error) {
	o, err := clusterOptions(table)
	if err != nil {
		return nil, err
	}
	return cluster.Open(ctx, url, o)
}

// dropOld deletes the generations of a table that nobody reads any more, if it lies in a cluster. It returns their numbers.
func dropOld(ctx context.Context, out, table string) ([]uint64, error) {
	if !cluster.IsAddress(out) {
		return nil, nil
	}
	o, err := clusterOptions(table)
	if err != nil {
		return nil, err
	}
	return cluster.DropOld(ctx, out, o)
}
