package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompare: modules that are packed compare equal; a changed one, one that is not packed, and another list of kernels are named.
func TestCompare(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("needs the zstd program")
	}
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "ptx")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(from, "lookup.ptx"), "// a comment\n.entry lookup\n")
	write(filepath.Join(from, "find_rank4.ptx"), ".visible .entry find_rank4(\n\t.param .u64 x)\n")
	if err := pack(from, to); err != nil {
		t.Fatal(err)
	}
	if err := compare(from, to); err != nil {
		t.Error(err)
	}
	for _, of := range []struct{ file, text, want string }{
		{filepath.Join(from, "find_rank4.ptx"), ".visible .entry find_rank4(\n\t.param .u32 x)\n", "module find_rank4"},
		{filepath.Join(from, "find_rank8.ptx"), ".entry find_rank8\n", "module find_rank8"},
		{filepath.Join(to, "../entries_cuda.go"), "package kernels\n", "entries_cuda.go"},
	} {
		old, _ := os.ReadFile(of.file)
		write(of.file, of.text)
		if err := compare(from, to); err == nil || !strings.Contains(err.Error(), of.want) {
			t.Errorf("error %v, want one of %s", err, of.want)
		}
		if old == nil {
			os.Remove(of.file)
		} else {
			write(of.file, string(old))
		}
	}
}
