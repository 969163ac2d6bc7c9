package pagetable

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

// TestOpen_ManifestFromCluster: a directory whose manifest is damaged gets it from the cluster behind it, and its log of updates stands over the pages as before. One with
// merged updates that the cluster lacks is an error, and left as it is.
func TestOpen_ManifestFromCluster(t *testing.T) {
	const rows = 4000
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), rows)
	dir := filepath.Join(t.TempDir(), "x.tc")
	store, err := cluster.Open(t.Context(), c.URL(), cluster.Options{})
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
