package statefolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/tmpfstest"
)

const testBytes = 5000

// testFolder is a folder that processes have one after the other.
type testFolder struct {
	*testing.T
	path string
	home device.Device
	*Folder
}

func newTestFolder(t *testing.T) *testFolder {
	path := tmpfstest.Folder(t)
	f := &testFolder{T: t, path: path, home: host.Open(1, 1)[0]}
	t.Cleanup(func() {
		f.kill()
		f.home.Close()
	})
	return f
}

// kill ends the process that has the folder, as far as the folder knows.
func (f *testFolder) kill() {
	if f.Folder != nil {
		f.lock.Close()
	}
}

// next has another process take the folder after the one before was killed. It returns the error of Load.
func (f *testFolder) next() error {
	f.Helper()
	f.kill()
	var err error
	if f.Folder, err = Open(f.path); err != nil {
		f.Fatal(err)
	}
	_, err = f.Load()
	return err
}

// new allocates memory, which must be zeros, and fills it.
func (f *testFolder) new(role string, with byte) []byte {
	f.Helper()
	b, err := f.Alloc(f.home, role, testBytes, role)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { f.home.Free(b) })
	if !bytes.Equal(b.Bytes(), make([]byte, testBytes)) {
		f.Errorf("new memory of role %s is not zeros", role)
	}
	for i := range b.Bytes() {
		b.Bytes()[i] = with
	}
	return b.Bytes()
}

func (f *testFolder) begin() {
	f.Helper()
	if err := f.Begin(func() (json.RawMessage, error) { return json.RawMessage("{}"), nil }); err != nil {
		f.Fatal(err)
	}
}

// has checks which files there are of some roles.
func (f *testFolder) has(pattern string, files int) {
	f.Helper()
	if all, err := filepath.Glob(filepath.Join(f.path, pattern)); err != nil || len(all) != files {
		f.Errorf("files %s: %v must be %d, error %v", pattern, all, files, err)
	}
}

// TestFolder_NewMemory: memory of processes that were killed before Begin is not used again, and that of clients of an owner whose manifest is lost is not written to.
func TestFolder_NewMemory(t *testing.T) {
	f := newTestFolder(t)
	if err := f.next(); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	f.new("a", 1)
	f.new("a.b", 2)
	if err := f.next(); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	f.has("a*", 0)
	first := f.new("a", 3)
	f.begin()
	if err := f.next(); err != nil { // killed again while it takes over
		t.Fatal(err)
	}
	f.new("a", 4)
	f.new("b", 4)
	if err := f.next(); err != nil {
		t.Fatal(err)
	}
	f.has("a*", 1)
	f.has("b*", 0)
	f.new("b", 5)
	os.Remove(filepath.Join(f.path, manifestName))
	if err := f.next(); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	f.new("a", 6)
	if !bytes.Equal(first, bytes.Repeat([]byte{3}, testBytes)) {
		t.Error("memory that a client maps has changed")
	}
}

// TestFolder_Close: memory that no Commit has named is given back, and that of the process before stays.
func TestFolder_Close(t *testing.T) {
	f := newTestFolder(t)
	f.next()
	f.new("a", 1)
	f.begin()
	if err := f.next(); err != nil {
		t.Fatal(err)
	}
	taken, err := f.Take(f.home, "a", testBytes, "a")
	if err != nil {
		t.Fatal(err)
	}
	f.home.Free(taken)
	f.new("b", 2)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.has("a*", 1)
	f.has("b*", 0)
}

// TestFolder_ForeignFiles: files that others have made stay, also in the folder of another process's socket.
func TestFolder_ForeignFiles(t *testing.T) {
	f := newTestFolder(t)
	names := []string{"socket.1-1", "notes.txt", "A.1-1", "a.1-1.old"}
	l, err := net.Listen("unix", filepath.Join(f.path, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range names[1:] {
		if err := os.WriteFile(filepath.Join(f.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.next()
	f.new("a", 1)
	f.begin()
	for _, name := range slices.Concat(names, []string{lockName, manifestName}) {
		f.has(name, 1)
	}
}

// TestFolder_Readers: a reader of an owner whose manifest is lost keeps its lock, and the names of later readers are others.
func TestFolder_Readers(t *testing.T) {
	f := newTestFolder(t)
	for range 2 {
		if err := f.next(); !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		b, err := f.Reader(f.home, "client.9-9", testBytes, "board")
		if err != nil {
			t.Fatal(err)
		}
		defer f.home.Free(b)
	}
	f.has("reader.*.client.9-9", 2)
	f.has("reader.2-1.*", 1)
	if earlier := f.lookLocked(); !slices.Equal(earlier, []string{"client.9-9"}) {
		t.Errorf("%q read earlier memory", earlier)
	}
}

// TestFolder_Commit: data that a change makes is committed with the memory, and is as before if that fails.
func TestFolder_Commit(t *testing.T) {
	f := newTestFolder(t)
	f.next()
	f.new("a", 1)
	data := "1"
	if err := f.Begin(func() (json.RawMessage, error) { return json.RawMessage(data), nil }); err != nil {
		t.Fatal(err)
	}
	commit := func() error {
		return f.Commit(func() func() {
			before := data
			data = "2"
			return func() { data = before }
		}, "a")
	}
	f.new("a", 2)
	blocked := filepath.Join(f.path, manifestName+".new")
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err == nil || data != "1" {
		t.Errorf("data %s after error %v", data, err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	f.kill()
	var err error
	if f.Folder, err = Open(f.path); err != nil {
		t.Fatal(err)
	}
	raw, err := f.Load()
	if err != nil || string(raw) != "2" {
		t.Errorf("data %s, error %v", raw, err)
	}
	b, err := f.Take(f.home, "a", testBytes, "a")
	if err != nil || b.Bytes()[0] != 2 {
		t.Errorf("memory of before the commit, error %v", err)
	}
	f.home.Free(b)
}
