//go:build cgo && linux

package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/pages"
)

// checks are the checks of testdata/check.c that run on every backend.
var checks = []string{"gathers", "pooled", "errors", "changes", "openings", "handles", "files", "pages", "models", "adopt", "threads", "growth", "calls", "fork", "attach"}

// check runs a check. opens is the number of openings that must not grow memory.
func check(t *testing.T, backend, name string, opens int) {
	args := []string{filepath.Join(libraryDir(t), "check"), backend, name}
	switch name {
	case "changes":
		args = append(args, t.TempDir())
	case "attach":
		args = append(args, "unix:"+filepath.Join(t.TempDir(), "s"))
	case "files":
		args = append(args, writeTable(t))
	case "models":
		args = append(args, filepath.Join(t.TempDir(), "m.tc"))
	case "pages":
		args = append(args, packTable(t))
	case "growth":
		args = append(args, fmt.Sprint(opens))
	case "calls":
		args = append(args, fmt.Sprint(200*opens))
	}
	run(t, args...)
}

// writeTable writes the table of the checks as a NumPy file.
func writeTable(t *testing.T) string {
	const rows, columns = 5000, 60
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns)
	header += strings.Repeat(" ", 128-10-1-len(header)) + "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
	file = append(file, header...)
	for i := range rows * columns {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(float32(i)/64))
	}
	path := filepath.Join(t.TempDir(), "features.npy")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// packTable packs the table of the checks, and returns the directory.
func packTable(t *testing.T) string {
	path := writeTable(t)
	dir := filepath.Join(t.TempDir(), "numbers.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (pages.Source, error) { return tablefile.Open(path) }
	if _, err := pages.Pack(t.Context(), open, w, pages.PackOptions{Name: "numbers", DType: dtype.Float32, Codec: "ibp4", PageBytes: 16 << 10}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLibrary_Host(t *testing.T) {
	libraryDir(t)
	t.Setenv("TENSORCACHE_LIBCUDA", "/nonexistent/libcuda.so.1") // no driver
	opens := 1000
	if testing.Short() {
		opens = 100
	}
	for _, name := range checks {
		t.Run(name, func(t *testing.T) { check(t, "host", name, opens) })
	}
}

func TestLibrary_GPU(t *testing.T) {
	gputest.Require(t)
	for _, name := range append([]string{"graphs", "parts", "device-source"}, checks...) {
		t.Run(name, func(t *testing.T) { check(t, "cuda", name, 8) })
	}
}

// Metrics and traces go where the environment says when the first cache is opened.
func TestLibrary_Telemetry(t *testing.T) {
	out := run(t, filepath.Join(libraryDir(t), "check"), "host", "telemetry")
	for _, want := range []string{`"tensorcache.lookups"`, `"checked"`, `"watched"`, `"SpanContext"`} {
		if !strings.Contains(out, want) {
			t.Errorf("what was exported lacks %s", want)
		}
	}
}

func TestExamples(t *testing.T) {
	for _, name := range []string{"example-c", "example-c++"} {
		if _, err := os.Stat(filepath.Join(libraryDir(t), name)); err != nil {
			t.Logf("no C++ compiler: %v", err)
			continue
		}
		out := run(t, filepath.Join(libraryDir(t), name), "host")
		if !strings.Contains(out, `"lookups":`) || name == "example-c++" && !strings.Contains(out, "TC_ERROR_ROWS: cache: row numbers out of range: row number (10000)") {
			t.Errorf("%s printed %s", name, out)
		}
	}
}

// Handlers that the program set before it loaded the library, and after, get their signals; the library stays; children that were forked before
// may load it.
func TestLoad(t *testing.T) {
	dir := libraryDir(t)
	run(t, filepath.Join(dir, "load"), filepath.Join(dir, "libtensorcache.so"))
}

// Signals without a handler end the process as they do without the library.
func TestLoad_DefaultSignals(t *testing.T) {
	dir := libraryDir(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE} {
		err := exec.Command(filepath.Join(dir, "load"), filepath.Join(dir, "libtensorcache.so"), "die", fmt.Sprint(int(signal))).Run()
		ended, ok := err.(*exec.ExitError)
		if !ok || ended.Sys().(syscall.WaitStatus).Signal() != signal {
			t.Errorf("%v: %v", signal, err)
		}
	}
}

// Python's faulthandler and KeyboardInterrupt work beside the library.
func TestLoad_Python(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	so := filepath.Join(libraryDir(t), "libtensorcache.so")
	for _, what := range []string{"before", "after"} {
		out, err := exec.Command(python, "testdata/signals.py", so, what).CombinedOutput()
		ended, ok := err.(*exec.ExitError)
		if !ok || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV || !strings.Contains(string(out), "Fatal Python error: Segmentation fault") {
			t.Errorf("faulthandler enabled %s loading: %v, %s", what, err, out)
		}
	}
	if out := run(t, python, "testdata/signals.py", so, "interrupt"); out != "interrupted\n" {
		t.Errorf("KeyboardInterrupt: %s", out)
	}
}

// The library exports what the header declares and nothing else, needs no driver, cannot be unloaded, and has next to no thread-local memory, of
// which glibc has little for libraries that are loaded by dlopen.
func TestLibrary_Form(t *testing.T) {
	f, err := elf.Open(filepath.Join(libraryDir(t), "libtensorcache.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS {
			exported = append(exported, s.Name)
			if s.Version != "TENSORCACHE_0" {
				t.Errorf("%s has version %q", s.Name, s.Version)
			}
		}
	}
	header, err := os.ReadFile("tensorcache.h")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for line := range strings.Lines(string(header)) {
		if of, ok := strings.CutPrefix(line, "TC_API "); ok {
			name, _, _ := strings.Cut(of, "(")
			declared = append(declared, strings.TrimLeft(name[strings.LastIndexByte(name, ' ')+1:], "*"))
		}
	}
	for _, name := range exported {
		if strings.HasSuffix(name, "_default") { // it would write structures of this version to those of programs with an older, shorter header
			t.Errorf("exports %s", name)
		}
	}
	slices.Sort(exported)
	slices.Sort(declared)
	if !slices.Equal(exported, declared) {
		t.Errorf("exported: %q\ndeclared: %q", exported, declared)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range needed {
		if strings.HasPrefix(name, "libcuda") || strings.HasPrefix(name, "libstdc++") {
			t.Errorf("needs %s", name)
		}
	}
	if os.Getenv("TENSORCACHE_LIBRARY") != "" { // of make capi
		for _, name := range needsGlibc(t, f) {
			if version := strings.TrimPrefix(name, "GLIBC_"); version != name && compareVersions(version, "2.17") > 0 {
				t.Errorf("needs glibc %s, most is 2.17", version)
			}
		}
	}
	const nodelete = 8
	if flags, err := f.DynValue(elf.DT_FLAGS_1); err != nil || len(flags) != 1 || flags[0]&nodelete == 0 {
		t.Errorf("DT_FLAGS_1 (%x, %v) lacks NODELETE", flags, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS && p.Memsz > 64 {
			t.Errorf("%d bytes of thread-local memory, most is 64", p.Memsz)
		}
	}
}

// needsGlibc returns the versions of symbols that a library needs.
func needsGlibc(t *testing.T, f *elf.File) (versions []string) {
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		versions = append(versions, s.Version)
	}
	return versions
}

// compareVersions compares versions such as 2.17.
func compareVersions(a, b string) int {
	parts := func(v string) (n []int) {
		for p := range strings.SplitSeq(v, ".") {
			i, _ := strconv.Atoi(p)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(parts(a), parts(b))
}
