package experiment

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tensorcache/tensorcache/pages"
)

// VerifiedPages is what a check of all pages of a table found. Its JSON form is what `cachebench verify --json` prints.
type VerifiedPages struct {
	Packed
	// StagedPages went through the second stage.
	StagedPages uint32 `json:"staged_pages"`
}

// VerifyPages reads all pages of a table, checks them, and decodes every row.
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
	return &VerifiedPages{*packed(from, s.Manifest(), start), v.StagedPages}, nil
}

// UnpackPages writes the rows of a table of pages to an array file.
func UnpackPages(ctx context.Context, from, out string, progress Progress) (*Packed, error) {
	start := time.Now()
	s, err := openStore(ctx, from)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if info, err := os.Stat(out); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("--out (%s) must be a regular file, or none yet", out)
	}
	progress.Stage("unpacking, percent of the pages", 100)
	percent := percentStep{p: progress}
	if err := pages.Unpack(ctx, s, out, func(n uint32) { percent.to(int64(n), int64(s.Manifest().Pages)) }); err != nil {
		return nil, err
	}
	return packed(out, s.Manifest(), start), nil
}
