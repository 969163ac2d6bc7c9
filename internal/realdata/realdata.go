// Package realdata finds real tables and traces for tests. They lie in shared/ beside the repository, or where TENSORCACHE_DATA
// and TENSORCACHE_TRACES say.
package realdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Table returns the path of a real table or graph, or skips the test where there is none.
func Table(t testing.TB, name string) string {
	t.Helper()
	return found(t, filepath.Join(folder(t, "TENSORCACHE_DATA", "data"), name), "TENSORCACHE_DATA")
}

// Trace returns the path of a real trace, or skips the test where there is none. Without TENSORCACHE_TRACES, traces lie beside
// the tables.
func Trace(t testing.TB, name string) string {
	t.Helper()
	tables := folder(t, "TENSORCACHE_DATA", "data")
	dir := os.Getenv("TENSORCACHE_TRACES")
	if dir == "" {
		dir = filepath.Join(tables, "..", "traces")
	}
	return found(t, filepath.Join(dir, name), "TENSORCACHE_TRACES")
}

func found(t testing.TB, path, variable string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("real input %s is absent; set %s to its folder", path, variable)
	}
	return path
}

// folder returns a folder of shared/, which lies beside the folder that has go.mod, unless the variable has another.
func folder(t testing.TB, variable, name string) string {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "..", "shared", name)
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("no go.mod above the test; set %s", variable)
		}
		dir = up
	}
}
