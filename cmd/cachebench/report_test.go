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

// TestReport_DamagedCells: a damaged line of cells.jsonl is named and makes the status 1. A last line that an interrupt cut short is
// named only.
func TestReport_DamagedCells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sweep(t, dir, grid)
	path := filepath.Join(dir, "cells.jsonl")
	whole := readFile(t, path)
	lines := strings.SplitAfter(whole, "\n")
	for _, c := range []struct {
		text, want string
		status     int
	}{
		{whole, "", 0},
		{whole[:len(whole)-100], "cachebench: " + path + ": line 8: is cut short, as by an interrupt: must hold one JSON value: unexpected end of JSON input\n", 0},
		{lines[0] + "\x00" + whole[len(lines[0])+1:], "cachebench: " + path + ": line 2: must hold one JSON value: invalid character '\\x00' looking for beginning of value\n", 1},
		{strings.Replace(whole, `"hit_ratio":0`, `"hit_ratio":7`, 1), "cachebench: " + path + ": line 1: hit_ratio (7", 1},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, stderr, status := cachebench(t, "report", dir)
		if status != c.status || !strings.HasPrefix(stderr, c.want) || strings.HasSuffix(stderr, "the page has the others\n") != (c.status == 1) {
			t.Errorf("status %d, want %d; stderr\n got %s\nwant %s", status, c.status, stderr, c.want)
		}
		if page := readFile(t, filepath.Join(dir, "report.html")); !strings.Contains(page, `id="summary"`) {
			t.Error("the page has no summary")
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
	refuse(t, `--out ("`+none+`/a.html") must be a file that can be written: open `+none+"/a.html: no such file or directory", "report", full, "--out", filepath.Join(none, "a.html"))
	refuse(t, "report: arguments (0) must be 1: DIR", "report")

	// What cannot be read is named; the rest is reported. A damaged result makes the status 1.
	stdout, stderr, status := cachebench(t, "report", full)
	wantErr := "cachebench: " + full + "/bad.json: must hold one JSON value: unexpected end of JSON input\n" +
		"cachebench: " + full + "/notes.txt: must be a .json or .jsonl file\n" +
		"cachebench: report: results are damaged, as said above; the page has the others\n"
	if page := filepath.Join(full, "report.html"); status != 1 || stdout != page+"\n" || stderr != wantErr {
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
	if _, stderr, status := cachebench(t, "report", full, "--out", out); status != 1 || !strings.HasSuffix(stderr, `cachebench: --out ("`+out+`"): write `+out+": no space left on device\n") {
		t.Errorf("full disk: status %d, stderr %q", status, stderr)
	}
}
