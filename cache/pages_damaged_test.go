package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

const damagedRows = 12_000

// damagedDirectory returns a directory of page files of two files, the rows, and the file whose pages are to be damaged. It has some of the pages only.
func damagedDirectory(t *testing.T, rowBytes int) (dir, file string, data []byte) {
	t.Helper()
	data = versionedRows(damagedRows, rowBytes)
	dir = packedFiles(t, data, rowBytes)
	c := openDirectory(t, dir, false)
	changed := data[7000*rowBytes:][:rowBytes]
	for i := range changed {
		changed[i] ^= 0x55
	}
	if err := errors.Join(c.Update(ctx, 0, []int64{7000}, changed), c.MergeUpdates(ctx, 0), c.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "g*", "pages-00001")) // has the page of row 7000 alone
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return dir, files[0], data
}

// TestOpen_DamagedPage: a page that is damaged, cut short, or whose file is missing keeps no table from opening, whether its rows were to be in slabs, in the host
// tier, or nowhere. Batches that need it fail and name it; all other rows are right. Statistics and log name it, too. Once the page is back its rows are served.
func TestOpen_DamagedPage(t *testing.T) {
	race.SkipSequential(t)
	for name, damage := range map[string]func(path string) error{
		"flipped":   func(path string) error { return flip(path, 5000) },
		"header":    func(path string) error { return flip(path, 0) },
		"directory": func(path string) error { return flip(path, 40) },
		"truncated": func(path string) error { return os.Truncate(path, 100) },
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"missing":   os.Remove,
	} {
		if pagesBackend != cache.BackendHost && testing.Short() && name != "flipped" && name != "missing" {
			continue // pages are read, and refused, by the host
		}
		for i, o := range []cache.Options{
			{Budget: 1 << 20, Host: cache.HostOptions{Memory: 2 << 20}},                                         // the page's rows are to be in slabs
			{Budget: 64 << 10, Host: cache.HostOptions{Memory: 4 << 20}},                                        // in the main region
			{Budget: 64 << 10, Host: cache.HostOptions{Memory: 400 << 10, Inclusive: true}},                     // nowhere, or in the ring
			{Budget: 1 << 20, Host: cache.HostOptions{Memory: 2 << 20}, Devices: cache.DeviceOptions{Count: 2}}, // what an absent row takes is measured
		} {
			if pagesBackend == cache.BackendHost && testing.Short() && name != "flipped" && i != len(name)%4 {
				continue // each damage has one of the places, and one damage has all
			}
			t.Run(fmt.Sprint(name, "/", o.Budget, "/", o.Host.Memory, "/", o.Devices.Count), func(t *testing.T) {
				if o.Devices.Count > 1 && pagesBackend != cache.BackendHost {
					t.Skip("one device is enough")
				}
				dir, path, data := damagedDirectory(t, pagedRowBytes)
				files, err := pages.Open(dir, pages.FileOptions{})
				if err != nil {
					t.Fatal(err)
				}
				bad := files.PageOf(7000)
				var lost, left []int64
				for row := range int64(damagedRows) {
					if files.PageOf(row) == bad {
						lost = append(lost, row)
					} else {
						left = append(left, row)
					}
				}
				whole, err := os.ReadFile(path)
				if err := errors.Join(err, files.Close(), damage(path)); err != nil {
					t.Fatal(err)
				}
				table, err := cache.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				var logged lockedBuffer
				o.Tables, o.Devices.Backend, o.Telemetry.Logger = []cache.Table{table}, pagesBackend, slog.New(slog.NewTextHandler(&logged, nil))
				o.Refresh.Accesses = 1
				o.Admission.Training = batches(0, slices.Concat(lost, allOf(damagedRows)))
				c := newCache(t, o)
				check(t, c, data, left)
				named := fmt.Sprintf("page %d: ", bad)
				out := make([]byte, 2*pagedRowBytes)
				for _, row := range []int64{lost[0], 7000, lost[len(lost)-1]} {
					err := c.Gather(ctx, cache.Request{Rows: []int64{row, left[0]}, Out: out})
					if !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), named) || !strings.Contains(err.Error(), "1 of 2 rows of table features are zeroed, the first at position 0") {
						t.Fatalf("row %d of the page: %v", row, err)
					}
					if !bytes.Equal(out, slices.Concat(make([]byte, pagedRowBytes), data[left[0]*pagedRowBytes:][:pagedRowBytes])) {
						t.Fatalf("row %d of the page: %x", row, out)
					}
				}
				if err := errors.Join(c.Prefetch(0, allOf(damagedRows)), c.Refresh(ctx)); err != nil {
					t.Fatal(err)
				}
				check(t, c, data, left)
				s := stats(t, c)
				stores := s.Tables[0].Tiers.Stores
				if len(stores) != 1 || stores[0].FailedPages == 0 || !strings.Contains(stores[0].Fault, named) || s.ChangeError != "" {
					t.Errorf("%+v", stores)
				}
				if text := logged.String(); !strings.Contains(text, named) {
					t.Errorf("the log does not name the page:\n%s", text)
				}
				if name == "missing" {
					return // the cache has no file open that could come back
				}
				if err := os.WriteFile(path, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				check(t, c, data, allOf(damagedRows))
			})
		}
	}
}

// flip changes a byte of a file.
func flip(path string, at int64) error {
	b, err := os.ReadFile(path)
	if err == nil {
		b[at] ^= 1
		err = os.WriteFile(path, b, 0o600)
	}
	return err
}

// TestOpen_NoPageLeft: a table of which no row can be read is not opened. The error names a page.
func TestOpen_NoPageLeft(t *testing.T) {
	dir := packedFiles(t, versionedRows(damagedRows, pagedRowBytes), pagedRowBytes)
	if err := os.Remove(filepath.Join(dir, "g1", "pages-00000")); err != nil {
		t.Fatal(err)
	}
	table, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 64 << 10, Devices: cache.DeviceOptions{Backend: pagesBackend}, Host: cache.HostOptions{Memory: 1 << 20}})
	if !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "table features: none of ") || !strings.Contains(err.Error(), "page 0: ") {
		t.Errorf("got %v", err)
	}
}
