package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tensorcache/tensorcache/internal/version"
)

// pages returns the Markdown files of this folder and those below it, without the ones that are made from measurements.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "design/*.md", "format/*.md", "notebook/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		all = append(all, found...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocs_Readers: every page says in its first line of text for whom it is.
func TestDocs_Readers(t *testing.T) {
	t.Parallel()
	for _, path := range pages(t) {
		for _, line := range prose(read(t, path)) {
			if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--") {
				continue
			}
			if !strings.HasPrefix(line, "For ") {
				t.Errorf("%s: the first line of text (%.60q) must begin with \"For \" and say for whom the page is", path, line)
			}
			break
		}
	}
}

// cellMost is the length of a table's cell, in characters, beyond which a reader loses the row.
const cellMost = 200

// TestDocs_Cells: cells of tables are short.
func TestDocs_Cells(t *testing.T) {
	t.Parallel()
	for _, path := range append(pages(t), "../README.md", "../python/README.md") {
		if path == "gpu.md" {
			continue // their tables follow the kernels and the record
		}
		for _, line := range prose(read(t, path)) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, "/"), "|") {
				cell = mdTarget.ReplaceAllString(strings.TrimSpace(cell), "$1")
				if n := utf8.RuneCountInString(cell); n > cellMost {
					t.Errorf("%s: a cell (%d characters) must have at most %d: %.80s …", path, n, cellMost, cell)
				}
			}
		}
	}
}

// TestDocs_Short: the pages that a stranger reads first stay short, and the first one has a picture.
func TestDocs_Short(t *testing.T) {
	t.Parallel()
	for path, most := range map[string]struct{ lines, bytes int }{
		"../README.md": {lines: 150}, "../CHANGELOG.md": {lines: 200}, "design.md": {bytes: 25_000},
	} {
		text := read(t, path)
		if n := strings.Count(text, "\n"); most.lines > 0 && n > most.lines {
			t.Errorf("%s: lines (%d) must be at most %d", path, n, most.lines)
		}
		if n := len(text); most.bytes > 0 && n > most.bytes {
			t.Errorf("%s: bytes (%d) must be at most %d", path, n, most.bytes)
		}
	}
	if text := read(t, "../README.md"); !strings.Contains(text, "](docs/row.svg)") {
		t.Error("README.md must have the diagram docs/row.svg")
	}
	for release := range strings.SplitSeq(read(t, "../CHANGELOG.md"), "\n## ") {
		if n := strings.Count(release, "\n"); n > 42 {
			t.Errorf("CHANGELOG.md: lines of a release (%d) must be at most 40: %.40q", n-2, release)
		}
	}
}

// TestDocs_Version: the changelog has a section of the version that the code says, and the README installs it.
func TestDocs_Version(t *testing.T) {
	t.Parallel()
	if heading := "\n## " + version.Number + "\n"; !strings.Contains(read(t, "../CHANGELOG.md"), heading) {
		t.Errorf("CHANGELOG.md must have the section %q", heading)
	}
	for _, name := range []string{"tensorcache-" + version.Number + "-", "tensorcached_" + version.Number + "_"} {
		if !strings.Contains(read(t, "../README.md"), name) {
			t.Errorf("README.md must install %s", name)
		}
	}
}

var runnable = regexp.MustCompile("(?ms)^```console runnable\n(.*?)^```")

// commands returns what a page's blocks of shell commands that are marked as runnable type, in order: lines that begin with $, and those that they go on in.
func commands(page string) string {
	var all strings.Builder
	for _, block := range runnable.FindAllStringSubmatch(page, -1) {
		more := false
		for line := range strings.Lines(block[1]) {
			typed, prompt := strings.CutPrefix(line, "$ ")
			if prompt || more {
				all.WriteString(typed)
				more = strings.HasSuffix(typed, "\\\n") || strings.Count(all.String(), `"`)%2 == 1
			}
		}
	}
	return all.String()
}

// TestDocs_Commands pins which lines are run.
func TestDocs_Commands(t *testing.T) {
	t.Parallel()
	got := commands("```console runnable\n$ a \"b\nc\"\nprinted\n$ d \\\n  e\nprinted\n```\n```\n$ not\n```\n```console runnable\n$ f\n```\n")
	if want := "a \"b\nc\"\nd \\\n  e\nf\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDocs_Snippets runs every block of shell commands that is marked as runnable, those of a page one after the other in one folder, which has what make build
// made at build/, and NumPy, which build/venv has. TENSORCACHE_REQUIRE_COMMANDS=1 makes the absence of these a failure.
func TestDocs_Snippets(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute: CI runs it by itself")
	}
	built, err := filepath.Abs("../build")
	if err != nil {
		t.Fatal(err)
	}
	path := built + string(filepath.ListSeparator) + filepath.Join(built, "venv/bin") + string(filepath.ListSeparator) + os.Getenv("PATH")
	need := exec.CommandContext(t.Context(), "sh", "-ec", "test -x build/cachebench; test -x build/tensorcached; python3 -c 'import numpy'")
	need.Dir, need.Env = "..", append(os.Environ(), "PATH="+path)
	if out, err := need.CombinedOutput(); err != nil && os.Getenv("TENSORCACHE_REQUIRE_COMMANDS") != "" {
		t.Fatalf("%v %s", err, out)
	} else if err != nil {
		t.Skip("build/cachebench, build/tensorcached or NumPy is not there: make build, make wheel")
	}
	run := 0
	for _, page := range append(pages(t), "../README.md") {
		script := commands(read(t, page))
		if script == "" {
			continue
		}
		run++
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", script)
			cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
			cmd.Env = append(os.Environ(), "PATH="+path)
			if err := os.Symlink(built, filepath.Join(cmd.Dir, "build")); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				t.Errorf("%v\n%s", err, out.String()[max(0, out.Len()-4000):])
			}
		})
	}
	if run == 0 {
		t.Error("no page has a block that is marked as runnable")
	}
}

// TestReleasing_Files: releasing.md lists the files that tools/release makes.
func TestReleasing_Files(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("../tools/release", "--list", "9.8.7").Output()
	if err != nil {
		t.Fatal(err)
	}
	made := strings.Fields(string(out))
	slices.Sort(made)
	var listed []string
	for line := range strings.Lines(read(t, "releasing.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.HasPrefix(line, "| `") || strings.Contains(line, "make ") && !strings.Contains(line, "-V-") {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[1], -1) {
			for _, arch := range [][2]string{{"amd64", "x86_64"}, {"arm64", "aarch64"}} {
				of := arch[0]
				if strings.HasSuffix(name[1], ".whl") {
					of = arch[1]
				}
				listed = append(listed, strings.NewReplacer("-V", "-9.8.7", "_V", "_9.8.7", "ARCH", of).Replace(name[1]))
			}
		}
	}
	slices.Sort(listed)
	if listed = slices.Compact(listed); !slices.Equal(made, listed) {
		t.Errorf("releasing.md lists\n%s\nand tools/release makes\n%s", strings.Join(listed, "\n"), strings.Join(made, "\n"))
	}
}
