package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// MergedPages is what merging updates into pages has written. Its JSON form is what `cachebench pack merge --json` prints.
type MergedPages struct {
	Packed
	// UpdatedRows were in the log, whose stored form has UpdateBytes. PagesWritten of BytesWritten were written for them.
	UpdatedRows  int64  `json:"updated_rows"`
	UpdateBytes  int64  `json:"update_bytes"`
	PagesWritten uint32 `json:"pages_written"`
	BytesWritten int64  `json:"bytes_written"`
}

// MergePages writes the updated rows of a log into the next generation of a table of pages, and removes them from the log. The table is a directory of page files, or
// lies in a cluster. folder is the log's: "" for that of the directory.
func MergePages(ctx context.Context, from, folder string, progress Progress) (_ *MergedPages, err error) {
	start := time.Now()
	if folder != "" {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--log (%s) must be the folder of the table's updates, and there is none", folder)
		}
	} else {
		if cluster.IsAddress(from) {
			return nil, fmt.Errorf("--log must name the folder of updates of the table in the cluster (%s)", from)
		}
		folder = delta.Folder(from)
	}
	s, err := openStore(ctx, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if empty, err := delta.Empty(folder); err != nil || empty { // nothing is made, so that the table stays as it is also for processes that may not write
		return &MergedPages{Packed: *packed(from, s.Manifest(), start)}, err
	}
	l, err := delta.Open(folder, s.Manifest(), delta.Options{Durable: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if r, ok := s.(pages.Rewritable); ok {
		if err := r.Settle(ctx); err != nil { // before a generation is written
			return nil, err
		}
	}
	progress.Stage("merging, percent of the groups of rows", 100)
	percent := percentStep{p: progress}
	create := func() (pages.Writer, error) {
		w, err := openWriter(ctx, from, s.Manifest().Name)
		if err != nil {
			return nil, err
		}
		if c, ok := w.(*cluster.Writer); ok {
			err = c.Replaces(s.Manifest())
		} else if w.Generation() != s.Manifest().Generation+1 { // a log of this one is no more than that
			err = fmt.Errorf("%s: another generation was committed meanwhile", from)
		}
		if err != nil {
			return nil, errors.Join(err, w.Abort())
		}
		return w, nil
	}
	done, err := l.Merge(ctx, s, create, nil, percent.to)
	if err != nil {
		return nil, goesOn(err)
	}
	merged, err := openStore(ctx, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, merged.Close()) }()
	m := &MergedPages{Packed: *packed(from, merged.Manifest(), start), UpdatedRows: done.Rows, UpdateBytes: done.UpdateBytes, PagesWritten: done.Pages, BytesWritten: done.Bytes}
	return m, nil
}
