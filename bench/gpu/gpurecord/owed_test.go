package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestOwed_Settle: a record passes if it is of the code, or beside a note of exactly the code; a note beside a record of the code says
// what that record lacks.
func TestOwed_Settle(t *testing.T) {
	tested, now := Sources{PTX: "a", Go: "b"}, Sources{PTX: "c", Go: "b"}
	for _, c := range []struct {
		name        string
		owed        *Owed
		tested, now Sources
		gaps        error
		want        string // "" passes
	}{
		{"tested", nil, tested, tested, nil, ""},
		{"changed", nil, tested, now, nil, "the PTX differs"},
		{"both changed", nil, tested, Sources{PTX: "x", Go: "y"}, nil, "the PTX differs"},
		{"owed", &Owed{Sources: now, Why: "x"}, tested, now, nil, ""},
		{"owed, and changed again", &Owed{Sources: now, Why: "x"}, tested, Sources{PTX: "c", Go: "d"}, nil, "of other code"},
		{"owed no more", &Owed{Sources: now, Why: "x"}, now, now, nil, "must go"},
		{"a tool is owed", &Owed{Sources: now, Why: "x"}, now, now, errors.New("memcheck did not run"), ""},
		{"a tool is owed of other code", &Owed{Sources: tested, Why: "x"}, now, now, errors.New("memcheck did not run"), "of other code"},
	} {
		err := c.owed.settle(c.tested, c.now, c.gaps)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOwed_Added: a note lists the sources that are new if all others are as tested, and holds only while they are.
func TestOwed_Added(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed := func(s string) string {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(w.EncodeAll([]byte(s), nil))
	}
	const source = "//go:build cuda\n\npackage x\n"
	write("a.ptx.zst", packed("a"))
	write("a.go", source)
	tested, err := hashSources(".")
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(Record{Sources: tested})
	if err != nil {
		t.Fatal(err)
	}
	write("record.json", string(record))
	write("b.ptx.zst", packed("b"))
	write("b.go", source)
	owe := func() {
		t.Helper()
		if err := run("owe", []string{"-owed", "owed.json", "-added", "README b.go b.ptx.zst", "record.json", "new"}); err != nil {
			t.Fatal(err)
		}
	}
	owe()
	if o, err := readOwed("owed.json"); err != nil || !slices.Equal(o.Added, []string{"b.go", "b.ptx.zst"}) {
		t.Fatalf("%+v, %v", o, err)
	}
	if err := check("record.json", "owed.json", nil); err != nil {
		t.Error(err)
	}
	write("a.go", source+"var changed int\n")
	if err := check("record.json", "owed.json", nil); err == nil || !strings.Contains(err.Error(), "others have changed") {
		t.Errorf("another source has changed: %v", err)
	}
	owe()
	if o, err := readOwed("owed.json"); err != nil || o.Added != nil {
		t.Errorf("a note of new and changed sources: %+v, %v", o, err)
	}
}

func TestReadOwed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owed.json")
	if o, err := readOwed(path); o != nil || err != nil {
		t.Errorf("no note: %v, %v", o, err)
	}
	for text, fault := range map[string]string{
		`{"ptx":"a","go":"b","why":"new kernels"}`: "",
		`{"ptx":"a","go":"b"}`:                     "why must say",
		`{`:                                        "unexpected end",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		o, err := readOwed(path)
		if fault == "" && (err != nil || o.Why != "new kernels") || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
}
