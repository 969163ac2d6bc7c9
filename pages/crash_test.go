//go:build unix

package pages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// The variables of a child process that packs: the directory; the seed of the rows; the write at which it kills itself, 0 for none; the most
// bytes of a file, 0 for any.
const (
	childDir   = "PAGES_TEST_DIR"
	childSeed  = "PAGES_TEST_SEED"
	childKill  = "PAGES_TEST_KILL"
	childLimit = "PAGES_TEST_LIMIT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := packChild(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("PAGES_TEST_MERGE"); dir != "" {
		if err := MergeChild(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const crashRows, crashRowBytes, childFileBytes = 6000, 64, 100_000

func number(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// packChild packs a table of several files and groups, each of which it makes durable. It prints how many rows an earlier run had packed and
// how many writes there were.
func packChild(dir string) error {
	fileBytes, groupBytes, syncBytes = childFileBytes, 40_000, 1
	var mu sync.Mutex // groups are made durable in the background
	writes, kill := 0, number(childKill)
	r := rand.New(rand.NewPCG(uint64(kill), 1))
	writeTo = func(f *os.File, b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if writes++; writes == kill {
			f.Write(b[:r.IntN(len(b)+1)])
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return f.Write(b)
	}
	if limit := number(childLimit); limit > 0 {
		signal.Ignore(syscall.SIGXFSZ)
		l := syscall.Rlimit{Cur: uint64(limit), Max: uint64(limit)}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			return err
		}
	}
	w, err := CreateFiles(dir)
	if err != nil {
		return err
	}
	resumed := int64(-1)
	data := floats(crashRows, crashRowBytes/4, uint64(number(childSeed)))
	_, err = Pack(context.Background(), func() (Source, error) { return &rowsSource{data: data, rowBytes: crashRowBytes}, nil }, w, PackOptions{
		Name: "x", Codec: "ibp4", Stage: "none", PageBytes: 64 << 10, DType: dtype.Float32, SourceKey: os.Getenv(childSeed),
		Progress: func(rows int64) {
			if resumed < 0 {
				resumed = rows
			}
		},
	})
	fmt.Println(resumed, writes)
	return err
}

// child runs packChild in a process of its own.
func child(t *testing.T, dir string, seed, kill, limit int) (resumed, writes int, output string, err error) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s=%d", childSeed, seed), fmt.Sprintf("%s=%d", childKill, kill), fmt.Sprintf("%s=%d", childLimit, limit))
	out, err := c.CombinedOutput()
	if err == nil {
		if _, err := fmt.Sscan(string(out), &resumed, &writes); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return resumed, writes, string(out), err
}

// TestPack_Killed: a process that packs is killed at each of its writes, of which a part may get through. What is opened then is the old
// generation, whole; the next run goes on and gives what an undisturbed run gives.
func TestPack_Killed(t *testing.T) {
	if race.Enabled {
		t.Skip("starts a process of one goroutine for each write")
	}
	filesOf(t, childFileBytes)
	undisturbed := filepath.Join(t.TempDir(), "undisturbed")
	_, writes, out, err := child(t, undisturbed, 2, 0, 0)
	if err != nil || writes < 15 {
		t.Fatal(err, out)
	}
	want := openDir(t, undisturbed, FileOptions{}).Manifest()
	old := floats(crashRows, crashRowBytes/4, 1)
	changed := floats(crashRows, crashRowBytes/4, 2)
	dir := filepath.Join(t.TempDir(), "table")
	if _, _, out, err := child(t, dir, 1, 0, 0); err != nil {
		t.Fatal(err, out)
	}
	generation, resumedRuns := uint64(1), 0
	for kill := 1; kill <= writes; kill++ {
		if _, _, out, err := child(t, dir, 2, kill, 0); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("write %d: %v, %s", kill, err, out)
		}
		table := openDir(t, dir, FileOptions{})
		if table.Manifest().Generation != generation {
			t.Fatalf("write %d: generation %d is read, %d was committed", kill, table.Manifest().Generation, generation)
		}
		if kill == 1 {
			expectRows(t, table, old, all(crashRows))
		}
		if _, err := Verify(t.Context(), table.stores[0], nil); err != nil {
			t.Fatalf("write %d: %v", kill, err)
		}
		resumed, _, out, err := child(t, dir, 2, 0, 0)
		if err != nil {
			t.Fatalf("write %d: %v, %s", kill, err, out)
		}
		if resumed > 0 {
			resumedRuns++
		}
		generation++
		table = openDir(t, dir, FileOptions{})
		if err := want.Same(table.Manifest()); err != nil || table.Manifest().Generation != generation {
			t.Fatalf("write %d: generation %d: %v", kill, table.Manifest().Generation, err)
		}
		expectRows(t, table, changed, all(crashRows))
	}
	if resumedRuns < writes/2 {
		t.Errorf("%d runs of %d went on where the killed one was", resumedRuns, writes)
	}
}

// TestPack_DiskFull: a write that fails is an error that says so. The old generation stays. With more space the next run goes on.
func TestPack_DiskFull(t *testing.T) {
	filesOf(t, childFileBytes)
	dir := filepath.Join(t.TempDir(), "table")
	if _, _, out, err := child(t, dir, 1, 0, 0); err != nil {
		t.Fatal(err, out)
	}
	_, _, out, err := child(t, dir, 2, 0, 70_000)
	if err == nil || !strings.Contains(out, "pages-00000: file too large") {
		t.Fatal(err, out)
	}
	expectRows(t, openDir(t, dir, FileOptions{}), floats(crashRows, crashRowBytes/4, 1), all(crashRows))
	resumed, _, out, err := child(t, dir, 2, 0, 0)
	if err != nil || resumed == 0 {
		t.Fatal(resumed, err, out)
	}
	expectRows(t, openDir(t, dir, FileOptions{}), floats(crashRows, crashRowBytes/4, 2), all(crashRows))
}

// failing is a source that fails at a row.
type failing struct {
	*rowsSource
	at int64
}

var errSource = errors.New("the source is gone")

func (s *failing) ReadFrom(row int64, dst []byte) error {
	if row+int64(len(dst)/s.rowBytes) > s.at {
		return errSource
	}
	return s.rowsSource.ReadFrom(row, dst)
}

// TestPack_OtherSource: what one source has left behind is not gone on with by another, or with other options.
func TestPack_OtherSource(t *testing.T) {
	groupsOf(t, 40_000)
	old := syncBytes
	syncBytes = 1
	t.Cleanup(func() { syncBytes = old })
	data := floats(crashRows, 16, 1)
	base := PackOptions{Codec: "none", Stage: "none", DType: dtype.Float32, SourceKey: "a", Workers: 1}
	for name, c := range map[string]struct {
		change  func(*PackOptions)
		resumed bool
	}{
		"the same": {func(*PackOptions) {}, true},
		"key":      {func(o *PackOptions) { o.SourceKey = "b" }, false},
		"page":     {func(o *PackOptions) { o.PageBytes = 64 << 10 }, false},
		"order":    {func(o *PackOptions) { o.Order = OrderByCount(make([]uint32, crashRows)) }, false},
		"codec":    {func(o *PackOptions) { o.Codec = "rank" }, false},
	} {
		dir := t.TempDir()
		w, err := CreateFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Pack(t.Context(), func() (Source, error) { return &failing{&rowsSource{data: data, rowBytes: 64}, 4000}, nil }, w, base)
		if !errors.Is(err, errSource) {
			t.Fatal(err)
		}
		if _, err := Open(dir, FileOptions{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not complete") {
			t.Errorf("%v", err)
		}
		o := base
		resumed := int64(-1)
		c.change(&o)
		o.Progress = func(rows int64) {
			if resumed < 0 {
				resumed = rows
			}
		}
		packFiles(t, dir, data, 64, o)
		if (resumed > 0) != c.resumed {
			t.Errorf("%s: %d rows were taken over", name, resumed)
		}
		expectRows(t, openDir(t, dir, FileOptions{}), data, all(crashRows))
	}
}

// TestPack_NoSourceKey: without a key, what was left behind is not gone on with: it may be of another source.
func TestPack_NoSourceKey(t *testing.T) {
	groupsOf(t, 40_000)
	old := syncBytes
	syncBytes = 1
	t.Cleanup(func() { syncBytes = old })
	dir := t.TempDir()
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := defaults(PackOptions{})
	_, err = Pack(t.Context(), func() (Source, error) {
		return &failing{&rowsSource{data: floats(crashRows, 16, 1), rowBytes: 64}, 4000}, nil
	}, w, o)
	if !errors.Is(err, errSource) {
		t.Fatal(err)
	}
	data := floats(crashRows, 16, 2)
	packFiles(t, dir, data, 64, o)
	expectRows(t, openDir(t, dir, FileOptions{}), data, all(crashRows))
}

// failAt has one function of the file system, of those that the writing of page files goes through, fail at its n-th call during a test.
func failAt(t *testing.T, n int) {
	calls := 0
	var mu sync.Mutex // groups are made durable in the background
	failing := func() error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == n {
			return syscall.ENOSPC
		}
		return nil
	}
	write, syncing, manifest := writeTo, syncFile, writeManifest
	t.Cleanup(func() { writeTo, syncFile, writeManifest = write, syncing, manifest })
	writeTo = func(f *os.File, b []byte) (int, error) {
		if err := failing(); err != nil {
			half, _ := f.Write(b[:len(b)/2])
			return half, err
		}
		return f.Write(b)
	}
	// What a sync that failed has not written is lost, and the next one returns nil: so it is on Linux.
	synced := map[string]int64{}
	syncFile = func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := failing(); err != nil {
			f.WriteAt(make([]byte, info.Size()-synced[f.Name()]), synced[f.Name()])
			return err
		}
		synced[f.Name()] = info.Size()
		return nil
	}
	writeManifest = func(path string, b []byte) error {
		if err := failing(); err != nil {
			return err
		}
		return manifest(path, b)
	}
}

// TestPack_EveryFault: each write and each sync fails once. The error says so, the old generation stays, and the next run gives all rows.
func TestPack_EveryFault(t *testing.T) {
	race.SkipSequential(t)
	filesOf(t, childFileBytes)
	groupsOf(t, 40_000)
	old := syncBytes
	syncBytes = 1
	t.Cleanup(func() { syncBytes = old })
	before, after := floats(crashRows, crashRowBytes/4, 1), floats(crashRows, crashRowBytes/4, 2)
	o := PackOptions{Codec: "none", Stage: "none", DType: dtype.Float32, PageBytes: 64 << 10, Workers: 1, SourceKey: "x"}
	dir := t.TempDir()
	packFiles(t, dir, before, crashRowBytes, o)
	for n := 1; ; n++ {
		if n > 100 {
			t.Fatal("there is no end of calls")
		}
		w, err := CreateFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		var packed error
		t.Run("", func(t *testing.T) {
			failAt(t, n)
			_, packed = Pack(t.Context(), func() (Source, error) { return &rowsSource{data: after, rowBytes: crashRowBytes}, nil }, w, defaults(o))
		})
		if packed == nil {
			if n < 20 {
				t.Errorf("only %d calls", n)
			}
			return
		}
		if !errors.Is(packed, syscall.ENOSPC) {
			t.Fatalf("call %d: %v", n, packed)
		}
		expectRows(t, openDir(t, dir, FileOptions{}), before, all(crashRows))
		packFiles(t, dir, after, crashRowBytes, o)
		expectRows(t, openDir(t, dir, FileOptions{}), after, all(crashRows))
		before, after = after, before
	}
}

// TestFiles_FaultAfterCommit: what readers already see is not removed when the writer is told of an error.
func TestFiles_FaultAfterCommit(t *testing.T) {
	data := floats(1000, 16, 1)
	from := packMemory(t, data, 64, PackOptions{Codec: "none"})
	dir := t.TempDir()
	packFiles(t, dir, floats(1000, 16, 2), 64, PackOptions{Codec: "none"})
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	write := writeManifest
	t.Cleanup(func() { writeManifest = write })
	writeManifest = func(path string, b []byte) error { return errors.Join(write(path, b), syscall.EMFILE) }
	if _, err := Copy(t.Context(), from, w, nil); !errors.Is(err, syscall.EMFILE) {
		t.Fatal(err)
	}
	expectRows(t, openDir(t, dir, FileOptions{}), data, all(1000))
}
