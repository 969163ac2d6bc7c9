package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// replacements are updates of the first rows of a table: their rows in data.
type replacements struct {
	rows []int64
	data []byte
}

func (r replacements) Rows() []int64 { return r.rows }
func (r replacements) Read(i int, _ []byte) ([]byte, bool, error) {
	return r.data[int(r.rows[i])*testRowBytes:][:testRowBytes], false, nil
}

// rewrite writes the first n rows of data into the next generation of a store's table.
func rewrite(t *testing.T, s pages.Rewritable, data []byte, n int64) error {
	t.Helper()
	w, err := s.Rewriter(t.Context())
	if err != nil {
		return err
	}
	r := replacements{data: data}
	for row := range n {
		r.rows = append(r.rows, row)
	}
	_, _, err = pages.Rewrite(t.Context(), s, w, r, nil)
	return err
}

func TestRewriter_ReplacesItsOwnGenerationOnly(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	old, fresh := rowsOf(1000, 71), rowsOf(1000, 72)
	load(t, c.URL(), "x", old, Options{})
	s, table := openTable(t, c.URL(), Options{Table: "x"})
	if err := rewrite(t, s, fresh, 1000); err != nil {
		t.Fatal(err)
	}
	allRows(t, table, old)
	again, err := s.Reopen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, err := pages.OpenStores(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	allRows(t, now, fresh)
	if err := rewrite(t, s, old, 1); !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), "generation 1, which is read, is not the current one") {
		t.Errorf("got %v", err)
	}
	// Another loader commits while this one writes.
	w, err := again.(*Store).Rewriter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load(t, c.URL(), "x", old, Options{})
	if _, _, err := pages.Rewrite(t.Context(), again, w, replacements{}, nil); !errors.Is(err, errReplaced) {
		t.Errorf("got %v", err)
	}
	if n := keysOf(t, c, "x", int(w.Generation())); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	// Old generations go when nobody reads them.
	if err := errors.Join(table.Close(), again.(*Store).DropOld(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n, m := keysOf(t, c, "x", 1), keysOf(t, c, "x", 2); n != 0 || m == 0 {
		t.Errorf("%d keys of the generation that nobody reads, %d of the one that is read", n, m)
	}
	allRows(t, now, fresh)
}

// A master that is lost may undo what its replica has not acknowledged. So a generation with updates is not committed then.
func TestRewriter_WaitsForReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: 30 * time.Second})
	old, fresh := rowsOf(1000, 73), rowsOf(1000, 74)
	load(t, c.URL(), "x", old, Options{})
	s, _ := openTable(t, c.URL(), Options{Table: "x", replicasWait: 200 * time.Millisecond})
	replica := c.Nodes[3+int(slotOf(keys{"x"}.last()))*3/slots]
	replica.Pause()
	if err := rewrite(t, s, fresh, 1000); !errors.Is(err, errReplicas) || !strings.Contains(err.Error(), "is not committed") {
		t.Errorf("got %v", err)
	}
	replica.Resume()
	_, table := openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, old)
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) { // until the replica has caught up
		err := rewrite(t, s, fresh, 1000)
		if err == nil {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal(err)
		}
	}
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

func TestLocal_ReopenTakesTheFolderAlong(t *testing.T) {
	t.Parallel()
	old, fresh, folder := rowsOf(2000, 75), rowsOf(2000, 76), t.TempDir()
	place := pages.NewMemory()
	if err := packTo(t.Context(), place.Writer(), "x", old); err != nil {
		t.Fatal(err)
	}
	s, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	l, table := openLocal(t, s, folder, 1<<30)
	allRows(t, table, old)
	settled(l)
	if err := rewrite(t, l, fresh, 2000); err != nil {
		t.Fatal(err)
	}
	again, err := l.Reopen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := again.(*Local)
	now, err := pages.OpenStores(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	hits := l.counts.hits.Load()
	for range 2 {
		allRows(t, now, fresh)
		allRows(t, table, old) // from the store behind
		settled(next)
	}
	if n := next.counts.hits.Load(); n != int64(next.Manifest().Pages) || l.counts.hits.Load() != hits {
		t.Errorf("%d hits in the folder, and %d of the store that has left it", n, l.counts.hits.Load()-hits)
	}
	if err := errors.Join(now.Close(), table.Close()); err != nil {
		t.Fatal(err)
	}
	// The folder has the pages of the new generation for the next process.
	if s, err = place.Open(); err != nil {
		t.Fatal(err)
	}
	l, table = openLocal(t, s, folder, 1<<30)
	allRows(t, table, fresh)
	if n := l.counts.hits.Load(); n != int64(l.Manifest().Pages) {
		t.Errorf("%d hits", n)
	}
	// A folder that cannot be used any more is done without.
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(filepath.Clean(folder), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if again, err = l.Reopen(t.Context()); err != nil || again.Name() != "memory" {
		t.Fatal(again, err)
	}
	if now, err = pages.OpenStores(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	allRows(t, now, fresh)
}
