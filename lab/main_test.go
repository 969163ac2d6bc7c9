package main

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/lab/gpu"
)

// lab runs a command, and returns what is wrong.
func lab(t *testing.T, command string, args ...string) error {
	t.Helper()
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return run(t.Context(), f, command, args)
}

// TestBench_From: saved figures are merged without a GPU; others are refused before anything is measured.
func TestBench_From(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.json", `{"device":"d","driver":"v","commit":"c","results":[{"case":"lookup","value":1}],"incomplete":[{"case":"load","reason":"not finished"}]}`)
	two := write("two.json", `{"device":"d","driver":"v","commit":"c","results":[{"case":"link","value":2}]}`)
	other := write("other.json", `{"device":"d","driver":"w","commit":"c","results":[{"case":"link","value":2}]}`)
	out := filepath.Join(dir, "all.json")
	if err := lab(t, "bench", "--from", one+","+two, "--out", out); err != nil {
		t.Fatal(err)
	}
	if r, err := gpu.ReadReports([]string{out}); err != nil || len(r.Results) != 2 || len(r.Incomplete) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for want, args := range map[string][]string{
		"report (1 cases incomplete) must be whole: load: not finished":                {"bench", "--from", one, "--from", two, "--whole"},
		"reports (d, driver v, and d, driver w) must be of one device and driver":      {"bench", "--from", one + "," + other},
		`bench: case ("hits") must be one of ` + strings.Join(gpu.Cases, ", "):         {"bench", "--cases", "lookup,hits"},
		`--out ("` + filepath.Join(dir, "no/x.json") + `") must be a file that can be`: {"bench", "--from", one, "--out", filepath.Join(dir, "no/x.json")},
		`argument ("x") must be the value of a flag`:                                   {"bench", "x"},
		`"x" must be a number`:                                    {"bench", "--rows", "512,x"},
		"no such file or directory":                               {"bench", "--from", filepath.Join(dir, "none.json")},
		"drive: row bytes (-4) must be 1 to half a page (131072)": {"drive", "--dir", dir, "--row-bytes", "-4"},
		"--tokens needs --gather":                                 {"drive", "--dir", dir, "--tokens", one},
		`--page ("2MiB") must be 4KiB to 1MiB`:                    {"drive", "--dir", dir, "--page", "2MiB"},
		"--dir (" + one + ") must be a folder on the drive":       {"drive", "--dir", one},
		`arguments (["x"]) must be as lab codecs --help says`:     {"codecs", "x"},
	} {
		if err := lab(t, args[0], args[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

// TestDrive: the command measures what it says and removes its pages.
func TestDrive(t *testing.T) {
	dir := t.TempDir()
	if err := lab(t, "drive", "--dir", dir, "--bytes", "8MiB", "--rounds", "1"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, flag.NewFlagSet("drive", flag.ContinueOnError), "drive", []string{"--dir", dir, "--bytes", "8MiB"}); err == nil {
		t.Error("a cancelled measurement ended well")
	}
}
