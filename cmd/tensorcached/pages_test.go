//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/pages"
)

// packed returns a folder of pages of rows of int32, called NAME.tc.
func packed(t *testing.T, name string, rows, columns int) string {
	t.Helper()
	file, dir := features(t, "x.npy", rows, columns), filepath.Join(t.TempDir(), name+".tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (pages.Source, error) { return tablefile.Open(file) }
	of, err := tablefile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	if _, err := pages.Pack(t.Context(), open, w, pages.PackOptions{Name: name, DType: of.DType(), Codec: "none", PageBytes: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestHostMemory: a table of pages is served with less host memory than it has rows. What is too little is an error that says what is enough.
func TestHostMemory(t *testing.T) {
	t.Parallel()
	dir, socket := packed(t, "big", 4000, 64), "unix:"+t.TempDir()+"/s"
	args := []string{"--features", dir, "--gpu-memory", "64KiB", "--listen", socket, "--resp", "127.0.0.1:0", "--refresh-interval", "0"}
	out, _, status := runs(t, append([]string{"--check", "--host-memory", "256KiB"}, args...)...)
	if status != 0 || !strings.Contains(out, "host tier, of which --host-memory is the limit | at most 256 KiB") {
		t.Errorf("%d\n%s", status, out)
	}
	if _, stderr, status := runs(t, append([]string{"--host-memory", "1KiB", "--log-level", "off"}, args...)...); status != 1 || !strings.Contains(stderr, "host memory (1024 B) must be at least 4") {
		t.Errorf("%d: %s", status, stderr)
	}
	if _, stderr, status := runs(t, append([]string{"--host-memory", "x"}, args...)...); status != 1 || stderr != "tensorcached: --host-memory (\"x\") must be a size such as 64MiB\n" {
		t.Errorf("%d: %s", status, stderr)
	}
	start(t, append(args, "--host-memory", "256KiB")...)
	out, stderr, _ := runs(t, "explain", "--connect", socket, "--table", "big", "--rows", "0,500,3999")
	for _, want := range []string{"|    0 | device 0, for ", "|  500 | host, for ", "| 3999 | pages, for ", "never cached"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s%s", want, out, stderr)
		}
	}
}
