package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAppendTo_FullDisk: the error names the file.
func TestAppendTo_FullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	err = appendTo(f, []byte("x"))
	if want := "sweep: write /dev/full: no space left on device"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestAppendTo_KeepsWhatWasThere when a write fails half way.
func TestAppendTo_KeepsWhatWasThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cells.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	old := write
	defer func() { write = old }()
	write = func(f *os.File, b []byte) error { f.Write(b[:len(b)/2]); return os.ErrDeadlineExceeded }
	if err := appendTo(f, []byte("second\n")); err == nil || !strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()) {
		t.Errorf("got %v", err)
	}
	write = old
	if err := appendTo(f, []byte("third\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "{}\nthird\n" {
		t.Errorf("file holds %q, %v", b, err)
	}
}

func TestReadCells_TornAndFaulty(t *testing.T) {
	const good = `{"config":{},"seed":1,"result":{"results":{"lookups":1}}}` + "\n"
	for _, c := range []struct {
		text  string
		cells int
		torn  int64
		want  string
	}{
		{"", 0, 0, ""},
		{good + good, 2, 0, ""},
		{good + good[:10], 1, 10, ""},
		{good + good[:len(good)-1], 1, int64(len(good)) - 1, ""},
		{good + "\x00\x00\x00\n", 1, 4, ""}, // a file system's zeros after a crash
		{good + "{}\n" + good, 0, 0, "FILE:2: byte 58: must be a JSON object: a sweep's cell"},
		{good + "x\n" + good, 0, 0, "FILE:2: byte 58: invalid character 'x'"},
	} {
		path := filepath.Join(t.TempDir(), "cells.jsonl")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		cells, torn, err := ReadCells(path)
		switch {
		case c.want != "":
			if want := strings.ReplaceAll(c.want, "FILE", path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v, want %s", c.text, err, want)
			}
		case err != nil || len(cells) != c.cells || torn != c.torn:
			t.Errorf("%q: %d cells, %d bytes torn, %v", c.text, len(cells), torn, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{0: nil, 3: {3}, 2.5: {4, 1}, 5: {9, 5, 1}} {
		if got := Median(values); got != want {
			t.Errorf("median of %v is %v, want %v", values, got, want)
		}
	}
}
