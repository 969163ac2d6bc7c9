//go:build cgo && linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/version"
)

// library is the folder with the library that is tested, and with the programs that test it.
var library struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if library.dir != "" {
		os.RemoveAll(library.dir)
	}
	os.Exit(status)
}

// libraryDir builds the library, with the build tags of the tests, and the programs. TENSORCACHE_LIBRARY names a library to test instead, for
// example that of make capi, and TENSORCACHE_CAPI_PROGRAMS a folder that has the library and the program check, for a host without
// compilers: tests that need more than a GPU skip there.
func libraryDir(t *testing.T) string {
	t.Helper()
	if made := os.Getenv("TENSORCACHE_CAPI_PROGRAMS"); made != "" {
		if !strings.HasPrefix(t.Name(), "TestLibrary_GPU") {
			t.Skip("no compilers")
		}
		return made
	}
	library.once.Do(func() { library.err = build() })
	if library.err != nil {
		t.Fatal(library.err)
	}
	return library.dir
}

func build() (err error) {
	if library.dir, err = os.MkdirTemp("", "capi"); err != nil {
		return err
	}
	so := filepath.Join(library.dir, "libtensorcache.so")
	if made := os.Getenv("TENSORCACHE_LIBRARY"); made != "" {
		if !filepath.IsAbs(made) {
			made = filepath.Join("..", made) // from the module's root
		}
		if made, err = filepath.Abs(made); err == nil {
			err = os.Symlink(made, so)
		}
	} else {
		var exports string
		if exports, err = filepath.Abs("exports.map"); err == nil {
			err = command("go", "build", "-buildvcs=false", "-tags", version.Tags(), "-buildmode=c-shared", "-o", so,
				"-ldflags", `-s -w -extldflags "-Wl,--version-script=`+exports+` -Wl,-soname,libtensorcache.so"`, ".")
		}
	}
	if err != nil {
		return err
	}
	out := func(name string) string { return filepath.Join(library.dir, name) }
	c := []string{"-Wall", "-Wextra", "-Werror", "-O1", "-I.", "-I../device/cuda/internal/driver/include"}
	link := []string{"-L" + library.dir, "-ltensorcache", "-ldl", "-lpthread", "-Wl,-rpath," + library.dir}
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil {
		return err
	}
	var check []string
	for _, s := range sources {
		if filepath.Base(s) != "load.c" {
			check = append(check, s)
		}
	}
	cc := cmp.Or(os.Getenv("CC"), "gcc")
	programs := [][]string{
		append(append(append([]string{cc, "-o", out("check")}, c...), check...), link...),
		append(append([]string{cc, "-o", out("load"), "testdata/load.c"}, c...), "-ldl", "-lpthread"),
		append(append([]string{cc, "-std=c99", "-pedantic", "-o", out("example-c"), "example/example.c"}, c...), link...),
	}
	if cxx, err := exec.LookPath(cmp.Or(os.Getenv("CXX"), "g++")); err == nil {
		programs = append(programs, append(append([]string{cxx, "-std=c++17", "-pedantic", "-o", out("example-c++"), "example/example.cpp"}, c...), link...))
	}
	for _, args := range programs {
		if err := command(args[0], args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return nil
}

// run runs a program that has to succeed, and returns what it printed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// A measured choice of a codec would be kept in the user's folder.
	cmd.Env = append(os.Environ(), "TENSORCACHE_CODEC_COSTS=off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// TestLicences compares what licenses.sh prints with the modules that the linker put into the library.
func TestLicences(t *testing.T) {
	so := filepath.Join(libraryDir(t), "libtensorcache.so")
	modules, err := exec.Command("go", "version", "-m", so).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("./licenses.sh", version.Tags(), ".").Output()
	if err != nil {
		t.Fatalf("licenses.sh: %v", err)
	}
	n := 0
	for line := range bytes.Lines(modules) {
		if f := bytes.Fields(line); len(f) >= 3 && string(f[0]) == "dep" {
			n++
			if title := fmt.Appendf(nil, "\n%s %s: ", f[1], f[2]); !bytes.Contains(text, title) {
				t.Errorf("no licence of %s %s", f[1], f[2])
			}
		}
	}
	if n < 10 || !bytes.Contains(text, []byte("\nGo go1.")) {
		t.Errorf("%d modules in the library, and a licence of Go: %v", n, bytes.Contains(text, []byte("\nGo go1.")))
	}
}

// TestCompiler_LeavesOutFoldersOfOthers: the compiler of make capi gets the system's CUDA folders from cgo, in which it must find nothing, and of which zig warns where
// they are missing.
func TestCompiler_LeavesOutFoldersOfOthers(t *testing.T) {
	rules, err := os.ReadFile("capi.mk")
	if os.IsNotExist(err) {
		t.Skip("the sources are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	makefile := "CURDIR := " + dir + "\nGOARCH := amd64\nGO := go\n" + strings.Replace(string(rules), "capi/capi.mk\n\t@mkdir", "\n\t@mkdir", 1)
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o644); err != nil {
		t.Fatal(err)
	}
	// In zig's place a program that prints its arguments.
	zig := filepath.Join(dir, "build", "zig-"+between(t, makefile, "ZIG_VERSION := ", "\n"), "ziglang", "zig")
	if err := os.MkdirAll(filepath.Dir(zig), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(zig, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	compiler := filepath.Join(filepath.Dir(filepath.Dir(zig)), "cc-amd64")
	if out, err := exec.Command("make", "-C", dir, compiler).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(compiler, "-L/usr/local/cuda/lib64", "-L/opt/cuda/lib", "-I/opt/cuda/include", "-L"+filepath.Join(dir, "missing"), "-L"+dir, "-L", dir, "-lcuda", "a b.c").Output()
	if want := "cc -target x86_64-linux-gnu.2.17 -L" + dir + " -L " + dir + " -lcuda a b.c\n"; err != nil || string(out) != want {
		t.Errorf("arguments %q, %v, want %q", out, err, want)
	}
}

func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, before)
	found, _, more := strings.Cut(rest, after)
	if !ok || !more {
		t.Fatalf("no %q", before)
	}
	return found
}
