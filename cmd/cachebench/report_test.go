package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestReport_OfCommands: what the commands print is what the report reads.
func TestReport_OfCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("run.json", succeed(t, append([]string{"run", "--json"}, small...)...))
	put("codecs.json", succeed(t, "compress", "--json", "--features", write(t, "table.npy", npyOf(t, dtype.Float32, smooth(800), 100, 8))))
	out := filepath.Join(dir, "report.html")
	if got := succeed(t, "report", dir); got != out+"\n" {
		t.Errorf("printed %q", got)
	}
	first := readFile(t, out)
	for _, want := range []string{"<title>cachebench report</title>", "run.json", "codecs.json", `id="summary"`, `id="codecs"`, "Miss-ratio curves: there is no output of simulate --json"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// The page is no result of the next report.
	succeed(t, "report", dir)
	if readFile(t, out) != first {
		t.Error("a second report differs")
	}
	elsewhere := filepath.Join(t.TempDir(), "page.html")
	succeed(t, "report", dir, "--out", elsewhere, "--title", "A & B", "--date", "some day")
	page := readFile(t, elsewhere)
	for _, want := range []string{"<title>A &amp; B</title>", "some day"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page elsewhere lacks %q", want)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReport_BadInput(t *testing.T) {
	t.Parallel()
	empty, full := t.TempDir(), t.TempDir()
	result, err := json.Marshal([]map[string]any{{"policy": "lru", "cache_objects": 1, "miss_ratio": 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"good.json": result, "bad.json": []byte("{"), "notes.txt": nil} {
		if err := os.WriteFile(filepath.Join(full, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	none := filepath.Join(empty, "none")
	refuse(t, "report: no result in the folder: "+empty+": empty", "report", empty)
	refuse(t, "report: open "+none+": no such file or directory", "report", none)
	refuse(t, `--out ("`+full+`/good.json") must end in .html`, "report", full, "--out", filepath.Join(full, "good.json"))
	refuse(t, "--out: folder ("+none+") must exist", "report", full, "--out", filepath.Join(none, "a.html"))
	refuse(t, "report: arguments (0) must be 1: DIR", "report")

	// What cannot be read is named; the rest is reported.
	stdout, stderr, status := cachebench(t, "report", full)
	wantErr := "cachebench: " + full + "/bad.json: must hold one JSON value: unexpected end of JSON input\n" +
		"cachebench: " + full + "/notes.txt: must be a .json or .jsonl file\n"
	if page := filepath.Join(full, "report.html"); status != 0 || stdout != page+"\n" || stderr != wantErr {
		t.Errorf("status %d, stdout %q, stderr\n got %q\nwant %q", status, stdout, stderr, wantErr)
	} else if text := readFile(t, page); !strings.Contains(text, "<code>bad.json</code>: must hold") || !strings.Contains(text, "<code>notes.txt</code>") {
		t.Error("the page does not name what is not in it")
	}

	// A full disk.
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	out := filepath.Join(t.TempDir(), "full.html")
	if err := os.Symlink("/dev/full", out); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := cachebench(t, "report", full, "--out", out); status != 1 || !strings.HasSuffix(stderr, "cachebench: report: write "+out+": no space left on device\n") {
		t.Errorf("full disk: status %d, stderr %q", status, stderr)
	}
}
