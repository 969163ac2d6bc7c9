package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{"owed", &Owed{now, "x"}, tested, now, nil, ""},
		{"owed, and changed again", &Owed{now, "x"}, tested, Sources{PTX: "c", Go: "d"}, nil, "of other code"},
		{"owed no more", &Owed{now, "x"}, now, now, nil, "must go"},
		{"a tool is owed", &Owed{now, "x"}, now, now, errors.New("memcheck did not run"), ""},
		{"a tool is owed of other code", &Owed{tested, "x"}, now, now, errors.New("memcheck did not run"), "of other code"},
	} {
		err := c.owed.settle(c.tested, c.now, c.gaps)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
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
