package pages

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// tree returns the contents of all files below a folder but locks, by name.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == lockFile {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// TestFiles_ManifestFromBehind: a directory whose manifest is missing or damaged gets it back from a store of the same contents, and its own pages are read.
func TestFiles_ManifestFromBehind(t *testing.T) {
	filesOf(t, 1<<20)
	data := floats(5_000, 100, 3)
	o := PackOptions{Name: "x", Codec: "ibp4", Stage: "none", PageBytes: 64 << 10}
	behind := packMemory(t, data, 400, o)
	for name, damage := range map[string]func(manifest string) error{
		"missing": os.Remove,
		"empty":   func(manifest string) error { return os.Truncate(manifest, 0) },
		"short":   func(manifest string) error { return os.Truncate(manifest, 100) },
		"long":    func(manifest string) error { return os.Truncate(manifest, 1<<20) },
		"flipped": func(manifest string) error {
			b, err := os.ReadFile(manifest)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return os.WriteFile(manifest, b, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			packFiles(t, dir, floats(5_000, 100, 5), 400, o)
			packFiles(t, dir, data, 400, o)                                   // generation 2
			if err := os.Mkdir(filepath.Join(dir, "g3"), 0o755); err != nil { // of a merge that was killed
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "g3", "pages-00000"), data[:4096], 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "missing" { // or of a pack
				if err := os.WriteFile(filepath.Join(dir, "g3", "packing"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, dir)
			if err := damage(filepath.Join(dir, "manifest")); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenFiles(dir, FileOptions{}); err == nil {
				t.Error("opened alone")
			}
			var opened sync.WaitGroup // several processes
			for range 3 {
				opened.Go(func() {
					f, err := OpenFiles(dir, FileOptions{Behind: behind})
					if err != nil {
						t.Error(err)
						return
					}
					f.Close()
				})
			}
			opened.Wait()
			after := tree(t, dir)
			for path, b := range before {
				if after[path] != b {
					t.Errorf("%s is not as it was", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files, were %d", len(after), len(before))
			}
			expectRows(t, openDir(t, dir, FileOptions{}), data, all(5_000))
			if err := damage(filepath.Join(dir, "manifest")); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFiles(dir, FileOptions{Behind: behind})
			if err != nil {
				t.Fatal(err)
			}
			if !f.Restored() {
				t.Error("not said to be restored")
			}
			if stats := expectRows(t, openStores(t, f, packMemory(t, data, 400, o)), data, all(5_000)); stats.Stores[0].Pages == 0 || stats.Stores[1].Pages != 0 {
				t.Errorf("%+v", stats)
			}
			if f, err = OpenFiles(dir, FileOptions{Behind: behind}); err != nil || f.Restored() {
				t.Fatalf("restored again, %v", err)
			}
			f.Close()
		})
	}
}

// TestFiles_ManifestNotRestored: a directory that may have what the store behind it lacks, or never had a table, is left as it is.
func TestFiles_ManifestNotRestored(t *testing.T) {
	race.SkipSequential(t)
	data, other := floats(5_000, 100, 3), floats(5_000, 100, 4)
	o := PackOptions{Name: "x", Codec: "ibp4", Stage: "none", PageBytes: 64 << 10}
	behind := packMemory(t, data, 400, o)
	packed := func(data []byte) func(dir string) error {
		return func(dir string) error {
			packFiles(t, dir, data, 400, o)
			return os.Remove(filepath.Join(dir, "manifest"))
		}
	}
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"other contents": {packed(other), "g1 has other contents, which may be updates that have not reached the other store"},
		"other contents beside the same": {func(dir string) error {
			aside := filepath.Join(dir, "aside")
			packFiles(t, dir, other, 400, o)
			if err := os.Rename(filepath.Join(dir, "g1"), aside); err != nil {
				return err
			}
			packFiles(t, dir, data, 400, o) // generation 2
			return errors.Join(os.Rename(aside, filepath.Join(dir, "g3")), os.Remove(filepath.Join(dir, "manifest")))
		}, "g3 has other contents"},
		"no index": {func(dir string) error {
			return errors.Join(packed(data)(dir), os.Remove(filepath.Join(dir, "g1", "index")))
		}, "g1 has no index"},
		"damaged index": {func(dir string) error {
			return errors.Join(packed(data)(dir), os.Truncate(filepath.Join(dir, "g1", "index"), 8))
		}, "g1 has other contents"},
		"pack under way": {func(dir string) error {
			return errors.Join(packed(data)(dir), os.WriteFile(filepath.Join(dir, "g1", "packing"), nil, 0o600))
		}, "g1 is not complete: run pack again"},
		"later version": {func(dir string) error {
			packFiles(t, dir, data, 400, o)
			path := filepath.Join(dir, "manifest")
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[7]++
			return os.WriteFile(path, b, 0o600)
		}, "a manifest of another version is not replaced"},
		"empty directory":   {func(string) error { return nil }, "has had no table"},
		"another directory": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600) }, "has had no table"},
		"no directory":      {os.RemoveAll, "no such file"},
		"held by a writer": {func(dir string) error {
			if err := packed(data)(dir); err != nil {
				return err
			}
			f, err := lockDir(dir)
			t.Cleanup(func() { f.Close() })
			return err
		}, "another process is writing to it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			_, fault := ReadManifest(dir)
			if _, err := OpenFiles(dir, FileOptions{Behind: behind}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fault.Error()) {
				t.Errorf("error %v", err)
			}
			after := tree(t, dir)
			for path, b := range before {
				if after[path] != b {
					t.Errorf("%s is not as it was", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files, were %d", len(after), len(before))
			}
		})
	}
}

// TestFiles_ManifestWithoutPages: a directory that has lost everything but its lock has all pages from the store behind it, until they are packed anew.
func TestFiles_ManifestWithoutPages(t *testing.T) {
	data := floats(5_000, 100, 3)
	o := PackOptions{Name: "x", Codec: "ibp4", Stage: "none", PageBytes: 64 << 10}
	dir, behind := t.TempDir(), packMemory(t, data, 400, o)
	packFiles(t, dir, data, 400, o)
	if err := errors.Join(os.Remove(filepath.Join(dir, "manifest")), os.RemoveAll(filepath.Join(dir, "g1"))); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFiles(dir, FileOptions{Behind: behind, Incomplete: true})
	if err != nil {
		t.Fatal(err)
	}
	if stats := expectRows(t, openStores(t, f, behind), data, all(5_000)); !f.Restored() || stats.Stores[0].Pages != 0 || stats.Stores[1].Pages != int64(behind.Manifest().Pages) {
		t.Errorf("%+v", stats)
	}
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), behind, w, nil); err != nil {
		t.Fatal(err)
	}
	text, err := behind.Manifest().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ReadManifest(dir); err != nil || m.Generation != 2 {
		t.Errorf("%+v, %v", m, err)
	} else if m.Generation = behind.Manifest().Generation; true {
		if b, err := m.MarshalBinary(); err != nil || !bytes.Equal(b, text) {
			t.Errorf("manifest differs, %v", err)
		}
	}
	expectRows(t, openDir(t, dir, FileOptions{}), data, all(5_000))
}
