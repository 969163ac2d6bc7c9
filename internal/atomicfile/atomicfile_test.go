package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func contents(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s holds %q, %v; want %q", path, b, err, want)
	}
}

func TestWrite_Replaces(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "link")
	for _, text := range []string{"one", "", "three"} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		contents(t, path, text)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("four")); err != nil {
		t.Fatal(err)
	}
	contents(t, path, "four")
	if target, err := os.Readlink(link); err != nil || target != "a" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestWrite_FullDisk: when the disk is full after half of the contents, the file is as it was, and the error names it.
func TestWrite_FullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("the old contents")); err != nil {
		t.Fatal(err)
	}
	old := write
	defer func() { write = old }()
	write = func(f *os.File, b []byte) (int, error) {
		n, _ := f.Write(b[:len(b)/2])
		return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	if err := Write(path, []byte("the new contents")); err == nil || err.Error() != "write "+path+": no space left on device" {
		t.Errorf("%v", err)
	}
	contents(t, path, "the old contents")
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("files are left behind: %v, %v", all, err)
	}
}

// TestWrite_Fails: an error leaves the file as it was, and nothing beside it.
func TestWrite_Fails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, filepath.Join(dir, "none", "b")} {
		if err := Write(bad, []byte("x")); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if err := Write("/dev/full", []byte("x")); err == nil {
			t.Error("a full device was written")
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
