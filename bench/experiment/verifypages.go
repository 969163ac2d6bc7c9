package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// VerifiedPages is what a check of all pages of a table found. Its JSON form is what `cachebench pack verify --json` prints.
type VerifiedPages struct {
	Packed
	// StagedPages went through the second stage.
	StagedPages uint32 `json:"staged_pages"`
	// UpdatedRows are in the log of a directory of page files, which was read, too, and not in its pages yet.
	UpdatedRows int64 `json:"updated_rows,omitempty"`
}

// VerifyPages reads all pages of a table, and its log of updates if it is a directory, checks them, and decodes every row of the pages.
func VerifyPages(ctx context.Context, from string, progress Progress) (*VerifiedPages, error) {
	start := time.Now()
	s, err := openStore(ctx, from)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	progress.Stage("verifying, percent of the pages", 100)
	percent := percentStep{p: progress}
	v, err := pages.Verify(ctx, s, func(n uint32) { percent.to(int64(n), int64(s.Manifest().Pages)) })
	if err != nil {
		return nil, err
	}
	updated := int64(0)
	if !cluster.IsAddress(from) {
		if updated, err = delta.Unmerged(from); err != nil {
			return nil, err
		}
	}
	return &VerifiedPages{*packed(from, s.Manifest(), start), v.StagedPages, updated}, nil
}

// UnpackPages writes the rows of a table of pages to an array file, which force replaces if it exists.
func UnpackPages(ctx context.Context, from, out string, force bool, progress Progress) (*Packed, error) {
	start := time.Now()
	if ext := strings.ToLower(filepath.Ext(out)); ext != ".npy" && ext != ".safetensors" {
		return nil, fmt.Errorf("--out (%s) must end in .npy or .safetensors", out)
	}
	if within(out, from) {
		return nil, fmt.Errorf("--out (%s) must not lie in the table's folder (%s)", out, from)
	}
	s, err := openStore(ctx, from)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := merged(from); err != nil {
		return nil, err
	}
	switch info, err := os.Stat(out); {
	case err != nil:
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("--out (%s) must be a regular file, or none yet", out)
	case info.Size() > 0 && !force:
		return nil, fmt.Errorf("--out (%s) exists: --force replaces it", out)
	}
	progress.Stage("unpacking, percent of the pages", 100)
	percent := percentStep{p: progress}
	if err := pages.Unpack(ctx, s, out, func(n uint32) { percent.to(int64(n), int64(s.Manifest().Pages)) }); err != nil {
		return nil, err
	}
	return packed(out, s.Manifest(), start), nil
}

// within says whether a path lies in a folder.
func within(path, folder string) bool {
	in, err := os.Stat(folder)
	if err != nil {
		return false // an address
	}
	path, err = filepath.Abs(path)
	for err == nil {
		parent := filepath.Dir(path)
		if at, err := os.Stat(parent); err == nil && os.SameFile(at, in) {
			return true
		}
		if parent == path {
			break
		}
		path = parent
	}
	return false
}
