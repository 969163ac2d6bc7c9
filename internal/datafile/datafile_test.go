package datafile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestOpen_RejectsWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Open(dir); err == nil || err.Error() != "path (a directory) must be a file" {
		t.Errorf("directory: %v", err)
	}
	if _, _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestSplit_NamesArrays(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "a.npz:x")
	if err := os.WriteFile(whole, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	end := regexp.MustCompile(`(?i)\.npz:`)
	for path, want := range map[string][2]string{
		"f.npz": {"f.npz", ""}, "f.npz:a": {"f.npz", "a"}, "F.NPZ:a:b": {"F.NPZ", "a:b"}, "f.npz:a.npz:b": {"f.npz", "a.npz:b"}, "f.npy:a": {"f.npy:a", ""},
		whole: {whole, ""},
	} {
		if file, array := Split(path, end); file != want[0] || array != want[1] {
			t.Errorf("%s: file %q, array %q", path, file, array)
		}
	}
}

func TestNamed_Once(t *testing.T) {
	cause := errors.New("rows (0) must be at least 1")
	err := Named("npy", "a.npz:x", Named("npy", "a\n.npz", cause))
	if got, want := err.Error(), `npy: "a\n.npz": rows (0) must be at least 1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !errors.Is(err, cause) || Named("npy", "a", nil) != nil {
		t.Error("the cause is lost, or there is one too many")
	}
}

func TestList_AtMostSome(t *testing.T) {
	var names []string
	for i := range 17 {
		names = append(names, fmt.Sprint(i))
	}
	if got, want := List(names[:2]), `"0", "1"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := List(names)[len(`"0", `):], `"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", and 1 more`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
