package pagetable

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// toDirectory does what cachebench pack redis://… --out DIR does.
func toDirectory(t *testing.T, url, dir string) {
	t.Helper()
	store, err := cluster.Open(t.Context(), url, cluster.Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pages.Copy(t.Context(), store, w, nil); err != nil {
		t.Fatal(err)
	}
}

// toCluster does what cachebench pack DIR --out redis://… does.
func toCluster(t *testing.T, dir, url string) {
	t.Helper()
	files, err := pages.OpenFiles(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w, err := cluster.NewWriter(t.Context(), url, cluster.Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pages.Copy(t.Context(), files, w, nil); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_DirectoryMergedByHand: updates of a directory with a cluster behind it reach the cluster by the commands of docs/cluster.md. Another machine, which serves the
// table meanwhile, goes on, and opens again once its directory has the new pages.
func TestOpen_DirectoryMergedByHand(t *testing.T) {
	const rows = 4000
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), rows)
	dir, otherDir := filepath.Join(t.TempDir(), "x.tc"), filepath.Join(t.TempDir(), "x.tc")
	toDirectory(t, c.URL(), dir)
	toDirectory(t, c.URL(), otherDir)
	v, unchanged := newVersions(rows), newVersions(rows)
	place, otherPlace := Place{Path: dir, Cold: c.URL() + "/x"}, Place{Path: otherDir, Cold: c.URL() + "/x"}
	one, other := open(t, place), open(t, otherPlace)
	if err := v.update(one, v.all()[:500]); err != nil {
		t.Fatal(err)
	}
	if err := one.MergeUpdates(t.Context(), 0); err != nil { // compacts
		t.Fatal(err)
	}
	held := func() int64 {
		s, err := one.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Tables[0].Tiers.HeldRows
	}
	if n := held(); n != 500 {
		t.Errorf("the log has %d rows", n)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unchanged.check(open(t, Place{Path: c.URL()}), unchanged.all()); err != nil {
		t.Fatal(err)
	}

	one = open(t, Place{Path: dir}) // cachebench pack merge
	if err := one.MergeUpdates(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "cachebench pack "+dir+" --out "+place.Cold) ||
		!strings.Contains(err.Error(), "cachebench pack "+place.Cold+" --out "+dir) {
		t.Errorf("error %v", err)
	}
	toCluster(t, dir, c.URL())
	one = open(t, place)
	if err := v.check(one, v.all()); err != nil {
		t.Fatal(err)
	}
	if n := held(); n != 0 {
		t.Errorf("the log has %d rows", n)
	}
	if err := v.check(open(t, Place{Path: c.URL()}), v.all()); err != nil {
		t.Fatal(err)
	}

	if err := unchanged.check(other, unchanged.all()); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := otherPlace.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "copy from the one that has the later rows") {
		t.Errorf("error %v", err)
	}
	toDirectory(t, c.URL(), otherDir)
	other = open(t, otherPlace)
	if err := errors.Join(v.check(other, v.all()), v.update(other, v.all()[1000:1500]), other.Close()); err != nil {
		t.Fatal(err)
	}

	// The table is opened in the cluster alone from now on, with the log of the directory.
	other = open(t, Place{Path: c.URL(), Log: filepath.Join(otherDir, "delta"), Cache: t.TempDir(), CacheBytes: 64 << 20})
	if err := errors.Join(v.check(other, v.all()), other.MergeUpdates(t.Context(), 0), v.check(other, v.all()), other.Close()); err != nil {
		t.Fatal(err)
	}
	if err := v.check(open(t, Place{Path: c.URL()}), v.all()); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_ManifestFromCluster: a directory whose manifest is damaged gets it from the cluster behind it, and its log of updates stands over the pages as before. One with
// merged updates that the cluster lacks is an error, and left as it is.
func TestOpen_ManifestFromCluster(t *testing.T) {
	const rows = 4000
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), rows)
	dir := filepath.Join(t.TempDir(), "x.tc")
	toDirectory(t, c.URL(), dir)
	v, manifest := newVersions(rows), filepath.Join(dir, "manifest")
	var said strings.Builder
	place := Place{Path: dir, Cold: c.URL() + "/x", Logger: slog.New(slog.NewTextHandler(&said, nil))}
	one := open(t, place)
	if err := v.update(one, v.all()[:500]); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	restored := func() (yes bool) {
		t.Helper()
		one = open(t, place)
		if err := v.check(one, v.all()); err != nil {
			t.Fatal(err)
		}
		s, err := one.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if err := v.update(one, v.all()[400:600]); err != nil {
			t.Fatal(err)
		}
		if err := v.check(one, v.all()); err != nil {
			t.Fatal(err)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		return s.Tables[0].Tiers.Restored
	}
	if restored() || said.Len() > 0 {
		t.Errorf("nothing is damaged, and the log says %q", said.String())
	}
	if err := os.Truncate(manifest, 100); err != nil {
		t.Fatal(err)
	}
	alone := place
	alone.Cold = c.URL()
	if _, err := alone.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "must end in /TABLE") {
		t.Errorf("an address without a table: %v", err)
	}
	if !restored() || !strings.Contains(said.String(), "has been restored from the cluster") || !strings.Contains(said.String(), dir) {
		t.Errorf("the log says %q", said.String())
	}
	if restored() {
		t.Error("restored again")
	}

	// Updates that are merged into the directory alone.
	one = open(t, Place{Path: dir})
	if err := one.MergeUpdates(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	if _, err := place.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "other contents, which may be updates that have not reached the other store") {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(manifest, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.check(open(t, Place{Path: dir}), v.all()); err != nil {
		t.Fatal(err)
	}
}
