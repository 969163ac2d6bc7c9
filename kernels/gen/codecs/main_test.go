package main

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/version"
)

const root = "../../.." // from here

// TestCodecs_FilesAreUpToDate compares the committed Go files with what the list and the headers give. make kernels writes them.
func TestCodecs_FilesAreUpToDate(t *testing.T) {
	names, coders := readAll(t, root+"/codec/codecs.list", root+"/kernels")
	for path, want := range map[string][]byte{"kernels/coderlist.go": coderTable(coders), "codec/registry/families.go": families(names)} {
		want, err := format.Source(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s (%v) is not what the list of codecs gives: make kernels", path, err)
		}
	}
}

func readAll(t *testing.T, list string, headers ...string) ([]string, []coder) {
	t.Helper()
	names, err := readList(list)
	if err != nil {
		t.Fatal(err)
	}
	coders, err := readCoders(names, headers)
	if err != nil {
		t.Fatal(err)
	}
	return names, coders
}

func TestParse_Faults(t *testing.T) {
	for line, want := range map[string]string{
		"x":                          "must have a name and a struct",
		"x XCoder":                   `lanes ("") must be 8, 16 or 32`,
		"x XCoder lanes=4":           `lanes ("4") must be 8, 16 or 32`,
		"x XCoder lanes=8 paris":     `"paris" is not understood`,
		"x XCoder lanes=8 quad=2":    `"quad=2" is not understood`,
		"x XCoder lanes=8 encode=no": `"encode=no" is not understood`,
	} {
		if _, err := parse(line, "coder_x.h"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestTune_Faults(t *testing.T) {
	for line, want := range map[string]string{
		"x pairs":          "must have names, a colon and words",
		"x y: pairs":       "there is no coder y",
		"x: paris":         `"paris" is not understood`,
		"x: pairs pairs":   "pairs is there twice",
		"x: pairs=1":       `"pairs=1" is not understood`,
		"x: lanes=16":      "lanes is there twice",
		"x: quads":         `"quads" is not understood`,
		"x: alone=0":       `alone ("0") must be a positive number`,
		"x: ahead=1000":    `ahead ("1000") must be a positive number, and ahead at most`,
		"x: encode":        `"encode" is not understood`,
		"x: ROW_ELEMENT=1": `"ROW_ELEMENT=1" is not understood`,
	} {
		c, err := parse("x XCoder lanes=8", "coder_x.h")
		if err != nil {
			t.Fatal(err)
		}
		if err := tune([]coder{c}, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestReadList_Faults(t *testing.T) {
	for _, text := range []string{"rank zipnn\n", "rank\nrank\n"} {
		path := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readList(path); err == nil || !strings.Contains(err.Error(), "must be one name, named once") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCodecs_ToyIsALine adds a codec as doc and coder.h say: its folder in codec/, its header in kernels/, and its line in the list. What
// follows from them, files and tests, is then the toy's too. The go command sees the three and the files by an overlay, so that nothing
// of the toy is left anywhere.
func TestCodecs_ToyIsALine(t *testing.T) {
	tmp := t.TempDir()
	list := filepath.Join(tmp, "codecs.list")
	production, err := os.ReadFile(root + "/codec/codecs.list")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, append(production, "toy\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	names, coders := readAll(t, list, root+"/kernels", "testdata")

	overlay := map[string]string{}
	for at, from := range map[string]string{"codec/toy/toy.go": "testdata/toy/toy.go", "kernels/coder_toy.h": "testdata/coder_toy.h"} {
		overlay[absolute(t, root, at)] = absolute(t, from)
	}
	for at, source := range map[string][]byte{"kernels/coderlist.go": coderTable(coders), "codec/registry/families.go": families(names)} {
		path := filepath.Join(tmp, filepath.Base(at))
		if err := write(path, source); err != nil {
			t.Fatal(err)
		}
		overlay[absolute(t, root, at)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlayed := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(overlayed, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ folder, run string }{
		{"kernels", "TestCodecs_/^toy$"}, {"transfer", "TestShare_EveryCodec/host/^toy$"}, {"codec/registry", "TestNames_AllTrain"},
	} {
		if testing.Short() && test.folder != "codec/registry" {
			continue // is compiled anew, with all that it needs
		}
		run(t, exec.Command("go", "test", "-vet=off", "-count=1", "-v", "-short", "-tags", version.Tags(), "-overlay", overlayed, "-run", test.run, "./"+test.folder), test.run)
	}

	clang, err := exec.LookPath("clang-19")
	if err != nil {
		t.Skip("the toy's kernels are not compiled: ", err)
	}
	for _, c := range coders {
		if c.name != "toy" {
			continue
		}
		for _, line := range c.modules() {
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			args := append([]string{
				"-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx80", "-nocudainc", "-nocudalib", "-I.",
				"-I" + absolute(t, "testdata"), "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", words[1] + ".cu",
			}, words[2:]...)
			compile := exec.Command(clang, args...)
			compile.Dir = root + "/kernels"
			run(t, compile, "")
		}
	}
}

// run runs a command, in the module's root if it says no folder, and fails unless its tests have run a subtest of the toy.
func run(t *testing.T, c *exec.Cmd, tests string) {
	t.Helper()
	if c.Dir == "" {
		c.Dir = root
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	if strings.Contains(tests, "toy") && !strings.Contains(string(out), "/toy/") {
		t.Fatalf("%s ran no test of the toy:\n%s", c, out)
	}
}

func absolute(t *testing.T, path ...string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
