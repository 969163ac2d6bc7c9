package cache_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
)

// twoTables are the tables of the snapshot tests.
func twoTables(t testing.TB) []cache.Table {
	return []cache.Table{
		fromBytes(t, "first", normalTable(400, 16, 1), 64), fromBytes(t, "second", normalTable(300, 8, 2), 32),
	}
}

// restored returns a cold cache that starts from a snapshot.
func restored(t testing.TB, path string, tables []cache.Table, devices int) *cache.Cache {
	t.Helper()
	return newCache(t, cache.Options{Tables: tables, Admission: cache.AdmissionOptions{Cold: true, Restore: path, Policy: &scripted{}}, Budget: 60_000, Devices: cache.DeviceOptions{Count: devices}})
}

// cachedRows returns the rows that hit.
func cachedRows(t testing.TB, c *cache.Cache) (keys []uint64) {
	t.Helper()
	for table := range 2 {
		for row := range c.Rows(table) {
			before := stats(t, c).Tables[table].Hits
			if err := c.Gather(ctx, cache.Request{Table: table, Rows: []int64{row}, Out: make([]byte, c.RowBytes(table))}); err != nil {
				t.Fatal(err)
			}
			if stats(t, c).Tables[table].Hits != before {
				keys = append(keys, hashmap.Key(table, row))
			}
		}
	}
	return keys
}

// someRows is a ranking of rows of both tables.
func someRows(from, to int64) (keys []uint64) {
	for r := from; r < to; r++ {
		keys = append(keys, hashmap.Key(0, r), hashmap.Key(1, r))
	}
	slices.Sort(keys)
	return keys
}

func TestSnapshot_RestoresWhatWasCached(t *testing.T) {
	race.SkipSequential(t)
	path := filepath.Join(t.TempDir(), "snapshot")
	p := &scripted{ranking: someRows(50, 120)}
	c := newCache(t, cache.Options{Tables: twoTables(t), Admission: cache.AdmissionOptions{Cold: true, Policy: p}, Budget: 60_000})
	if err := c.Snapshot(path); err != nil { // of nothing
		t.Fatal(err)
	}
	if s := stats(t, restored(t, path, twoTables(t), 1)); s.RestoreError != "" || s.RestoredRows != 0 {
		t.Fatalf("an empty one: %d rows, %s", s.RestoredRows, s.RestoreError)
	}
	refresh(t, c)
	// An admitted row that lies in the overlay is listed too.
	if err := c.Update(ctx, 0, []int64{60}, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if err := c.Snapshot(path); err != nil {
		t.Fatal(err)
	}
	want := cachedRows(t, c)
	if !slices.Equal(want, someRows(50, 120)) {
		t.Fatalf("%d rows cached", len(want))
	}
	for _, devices := range []int{1, 3} {
		p := &scripted{}
		c := newCache(t, cache.Options{Tables: twoTables(t), Admission: cache.AdmissionOptions{Cold: true, Restore: path, Policy: p}, Budget: 60_000, Devices: cache.DeviceOptions{Count: devices}})
		if s := stats(t, c); s.RestoreError != "" || s.RestoredRows != 140 || len(p.observed) != 140 {
			t.Fatalf("%d rows restored, %d observed, %s", s.RestoredRows, len(p.observed), s.RestoreError)
		}
		if got := cachedRows(t, c); !slices.Equal(got, want) {
			t.Fatalf("%d rows hit, want %d", len(got), len(want))
		}
	}
	// Rows that no longer fit, or no longer exist, are left out. The remaining space is filled as without a snapshot.
	shorter := []cache.Table{fromBytes(t, "first", normalTable(100, 16, 1), 64), fromBytes(t, "second", normalTable(300, 8, 2), 32)}
	c = newCache(t, cache.Options{Tables: shorter, Admission: cache.AdmissionOptions{Restore: path, Policy: &scripted{}}, Budget: 5000})
	if s := stats(t, c); s.RestoreError != "" || s.RestoredRows < 20 || s.RestoredRows >= 120 {
		t.Fatalf("%d rows restored, %s", s.RestoredRows, s.RestoreError)
	}
	// Rows are divided over devices by hash. A row whose slab is full is not restored.
	for budget := int64(2500); budget < 4000; budget += 100 {
		c := newCache(t, cache.Options{Tables: twoTables(t), Admission: cache.AdmissionOptions{Cold: true, Restore: path, Policy: &scripted{}}, Budget: budget, Devices: cache.DeviceOptions{Count: 3}})
		if s := stats(t, c); s.RestoredRows != s.Tables[0].CachedRows+s.Tables[1].CachedRows {
			t.Fatalf("budget %d: %d rows restored, %d and %d cached", budget, s.RestoredRows, s.Tables[0].CachedRows, s.Tables[1].CachedRows)
		}
	}
}

// TestSnapshot_DamageIsFound: if any byte was changed, or the end is missing, New reports the damage and starts cold.
func TestSnapshot_DamageIsFound(t *testing.T) {
	race.SkipSequential(t)
	path := filepath.Join(t.TempDir(), "snapshot")
	c := newCache(t, cache.Options{Tables: twoTables(t), Admission: cache.AdmissionOptions{Cold: true, Policy: &scripted{ranking: someRows(3, 6)}}, Budget: 60_000})
	refresh(t, c)
	if err := c.Snapshot(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte, want string) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := stats(t, restored(t, path, twoTables(t), 1))
		if !strings.HasPrefix(s.RestoreError, "cache: snapshot: "+path+": damaged or another cache's: at byte ") || !strings.Contains(s.RestoreError, want) {
			t.Fatalf("%s: %q", what, s.RestoreError)
		}
		if s.RestoredRows != 0 || s.PayloadBytes != 0 {
			t.Fatalf("%s: %d rows restored", what, s.RestoredRows)
		}
	}
	places := make([]int, len(good))
	for i := range places {
		places[i] = i
	}
	for _, i := range race.Some(places) {
		b := bytes.Clone(good)
		b[i] ^= 1 << (i % 8)
		try(fmt.Sprint("byte ", i), b, "")
		try(fmt.Sprint("length ", i), good[:i], "")
	}
	try("longer", append(bytes.Clone(good), 0), "1 bytes too many")
	try("half of it twice", append(bytes.Clone(good[:len(good)/2]), good...), "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if s := stats(t, restored(t, path, twoTables(t), 1)); !strings.Contains(s.RestoreError, "no such file") {
		t.Errorf("a missing one: %q", s.RestoreError)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, tables := range map[string][]cache.Table{
		"tables (2) must be the cache's 1": {fromBytes(t, "first", normalTable(400, 16, 1), 64)},
		"table 1: second, rows of 32 bytes of uint8, must be the cache's: other, rows of 32 bytes of uint8": {twoTables(t)[0], fromBytes(t, "other", normalTable(300, 8, 2), 32)},
		"table 0: first, rows of 64 bytes of uint8, must be the cache's: first, rows of 128 bytes of uint8": {fromBytes(t, "first", normalTable(400, 32, 1), 128), twoTables(t)[1]},
	} {
		if s := stats(t, restored(t, path, tables, 1)); !strings.HasSuffix(s.RestoreError, want) {
			t.Errorf("got %q, want %s", s.RestoreError, want)
		}
	}
}

// TestSnapshot_FailuresLeaveTheOldOne: if a snapshot cannot be written, the old file stays.
func TestSnapshot_FailuresLeaveTheOldOne(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, cache.Options{Tables: twoTables(t), Budget: 60_000})
	if err := c.Snapshot(filepath.Join(dir, "missing", "snapshot")); err == nil || !strings.HasPrefix(err.Error(), "cache: snapshot: open ") {
		t.Errorf("a folder that is not there: %v", err)
	}
	full := filepath.Join(dir, "folder") // a rename cannot take its place
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.Snapshot(full); err == nil {
		t.Error("a folder was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("files are left behind: %v, %v", all, err)
	}
}

// TestSnapshot_KilledProcess kills, at random times, a process that writes snapshots. The file is always one complete snapshot.
func TestSnapshot_KilledProcess(t *testing.T) {
	race.SkipSequential(t)
	const variable = "TENSORCACHE_SNAPSHOT_TO"
	rankings := [][]uint64{someRows(0, 200), someRows(200, 300)}
	if path := os.Getenv(variable); path != "" {
		var caches []*cache.Cache
		for _, ranking := range rankings {
			c := newCache(t, cache.Options{Tables: twoTables(t), Admission: cache.AdmissionOptions{Cold: true, Policy: &scripted{ranking: ranking}}, Budget: 60_000})
			refresh(t, c)
			caches = append(caches, c)
		}
		for i := 0; ; i++ {
			if err := caches[i%2].Snapshot(path); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				fmt.Println("written")
			}
		}
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	r := rand.New(rand.NewPCG(1, 1))
	seen := map[int64]int{}
	for range 12 {
		child := exec.Command(os.Args[0], "-test.run=^TestSnapshot_KilledProcess$")
		child.Env = append(os.Environ(), variable+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // it has written one
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
		child.Process.Kill()
		child.Wait()
		c := restored(t, path, twoTables(t), 1)
		s := stats(t, c)
		if s.RestoreError != "" {
			t.Fatal(s.RestoreError)
		}
		got := cachedRows(t, c)
		if !slices.Equal(got, rankings[0]) && !slices.Equal(got, rankings[1]) {
			t.Fatalf("%d rows restored are neither snapshot's", len(got))
		}
		seen[s.RestoredRows]++
	}
	t.Logf("snapshots found: %v", seen)
}
