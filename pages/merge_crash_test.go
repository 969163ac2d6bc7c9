//go:build unix

package pages_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// The variables of a child process that merges: the directory, as of those that pack, and the operation at which it ends.
const (
	mergeDir  = "PAGES_TEST_MERGE"
	mergeKill = "PAGES_TEST_MERGE_KILL"
)

func init() { pages.MergeChild = mergeChild }

// mergeChild merges the log of a directory into its pages, and kills itself in the middle.
func mergeChild(dir string) error {
	kill, err := strconv.Atoi(os.Getenv(mergeKill))
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(kill), 3))
	operations := 0
	step := func(write func(part float64)) {
		if operations++; operations == kill {
			write(r.Float64())
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	pages.OnWrites(step)
	files, err := pages.OpenFiles(dir, pages.FileOptions{})
	if err != nil {
		return err
	}
	defer files.Close()
	l, err := delta.Open(delta.Folder(dir), files.Manifest(), delta.Options{Durable: true})
	if err != nil {
		return err
	}
	_, err = l.Merge(context.Background(), files, func() (pages.Writer, error) {
		step(func(float64) {}) // the log is sealed
		return pages.CreateFiles(dir)
	}, func() error {
		step(func(float64) {}) // the generation is committed, and the log has the rows still
		return nil
	}, nil)
	return errors.Join(err, l.Close())
}

// byteRows is a source of rows in memory.
type byteRows struct {
	data     []byte
	rowBytes int
}

func (s *byteRows) Rows() int                { return len(s.data) / s.rowBytes }
func (s *byteRows) RowBytes() int            { return s.rowBytes }
func (s *byteRows) Close() error             { return nil }
func (s *byteRows) Read([]byte) (int, error) { return 0, io.EOF }
func (s *byteRows) ReadFrom(row int64, dst []byte) error {
	copy(dst, s.data[int(row)*s.rowBytes:])
	return nil
}

// TestMerge_Killed: a process that merges updates into page files is killed at each of its writes, of which a part may get through, at each sync, and around each
// step. What is opened then has every update, once in the pages and the log, and the next merge ends as if nothing had happened.
func TestMerge_Killed(t *testing.T) {
	if race.Enabled {
		t.Skip("starts a process of one goroutine for each write")
	}
	const rows, rowBytes = 3000, 100
	data := make([]byte, rows*rowBytes)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	dir := filepath.Join(t.TempDir(), "table.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	source := func() (pages.Source, error) { return &byteRows{data, rowBytes}, nil }
	if _, err := pages.Pack(t.Context(), source, w, pages.PackOptions{Name: "x", DType: dtype.Uint8, Codec: "none", Stage: "none", PageBytes: 8 << 10}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	update := func(n int) {
		t.Helper()
		m, err := pages.ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := delta.Open(delta.Folder(dir), m, delta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for range n {
			row := r.Int64N(rows)
			fresh := data[int(row)*rowBytes:][:rowBytes]
			for i := range fresh {
				fresh[i] = byte(r.Uint32())
			}
			if err := l.Append([]delta.Row{{Row: row, Stored: bytes.Clone(fresh)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	same := func(when string) {
		t.Helper()
		table, err := delta.OpenTable(dir, delta.Folder(dir), func() (*pages.Table, error) { return pages.Open(dir, pages.FileOptions{}) })
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer table.Close()
		table.ReadRows(t.Context(), all, func(i int, stored []byte, _ bool, err error) {
			if err != nil || !bytes.Equal(stored, data[i*rowBytes:][:rowBytes]) {
				t.Errorf("%s: row %d: %v", when, i, err)
			}
		})
	}
	merge := func(kill int) (killed bool) {
		t.Helper()
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), mergeDir+"="+dir, fmt.Sprintf("%s=%d", mergeKill, kill))
		out, err := c.CombinedOutput()
		if err != nil && err.Error() != "signal: killed" {
			t.Fatalf("operation %d: %v, %s", kill, err, out)
		}
		return err != nil
	}
	for kill, killed := 1, true; killed; kill++ {
		update([]int{3, 400}[kill%2]) // some pages change, or all are written
		killed = merge(kill)
		same(fmt.Sprintf("killed at operation %d", kill))
		if kill%3 == 0 {
			update(2)
			same("updated again")
		}
		if !killed {
			if n, err := delta.Unmerged(dir); n != 0 && kill%3 != 0 || err != nil {
				t.Errorf("%d rows are left in the log: %v", n, err)
			}
			if kill < 9 { // it is sealed, pages and index are written and synced, the manifest is replaced, and that is known
				t.Errorf("a merge has %d operations", kill-1)
			}
		}
		if t.Failed() || kill > 200 {
			t.Fatalf("at operation %d", kill)
		}
	}
	if merge(0) {
		t.Fatal("the last merge was killed")
	}
	same("merged")
	if n, err := delta.Unmerged(dir); n != 0 || err != nil {
		t.Errorf("%d rows are left in the log: %v", n, err)
	}
}
