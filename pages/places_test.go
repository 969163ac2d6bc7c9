package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// rewriteSome replaces n rows, of those in [from, to), of a directory by rows of changed, and notes them down in want.
func rewriteSome(t *testing.T, dir string, r *rand.Rand, from, to, n int, changed, want []byte, rowBytes int) (*Manifest, Rewritten, error) {
	t.Helper()
	table, err := Open(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	u := &updated{}
	next := bytes.Clone(want)
	for _, i := range r.Perm(to - from)[:n] {
		row, other := from+i, r.IntN(len(changed)/rowBytes)
		u.encode(t, table, int64(row), changed[other*rowBytes:][:rowBytes])
		copy(next[row*rowBytes:], changed[other*rowBytes:][:rowBytes])
	}
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, done, err := Rewrite(t.Context(), table.stores[0], w, u, nil)
	if err == nil {
		copy(want, next)
	}
	return m, done, err
}

// diskBytes returns the length of all page files of a directory.
func diskBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "g*", "pages-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// TestRewrite_WritesWhatChanges: a few updates cost a few pages, generation after generation, until the files hold too many pages that are no longer used.
func TestRewrite_WritesWhatChanges(t *testing.T) {
	race.SkipSequential(t)
	groupsOf(t, 500_000)
	filesOf(t, 700_000)
	const rows, columns, rowBytes = 10_000, 32, 128
	for name, o := range map[string]PackOptions{
		"raw":  {Codec: "none", Stage: "none", PageBytes: 64 << 10},
		"zstd": {Codec: "none", Stage: "zstd", PageBytes: 64 << 10},
		"ibp4": {Codec: "ibp4", PageBytes: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "table")
			want, changed := floats(rows, columns, 1), floats(rows, columns, 2)
			first := packFiles(t, dir, want, rowBytes, o)
			original := openDir(t, dir, FileOptions{})
			packed := bytes.Clone(want)
			r := rand.New(rand.NewPCG(1, 2))
			whole := 0
			for i := range 24 {
				from := r.IntN(rows - 500)
				before := openDir(t, dir, FileOptions{})
				reads := bytes.Clone(want)
				m, done, err := rewriteSome(t, dir, r, from, from+500, 20, changed, want, rowBytes)
				if err != nil {
					t.Fatal(err)
				}
				if m.Generation != uint64(i+2) || done.Rows != 20 {
					t.Fatalf("%+v, %+v", m, done)
				}
				if done.Pages == m.Pages {
					whole++
				} else if group := int64(700_000); done.Bytes > group || done.Pages == 0 || o.Codec == "none" && (done.Pages != done.ChangedPages || done.Pages > 3) {
					t.Fatalf("20 rows of a table of %d pages: %+v", m.Pages, done)
				}
				if i%6 == 5 {
					expectRows(t, before, reads, all(rows)) // of the generation before
					if _, err := Verify(t.Context(), openDir(t, dir, FileOptions{}).stores[0], nil); err != nil {
						t.Fatal(err)
					}
				}
				after := openDir(t, dir, FileOptions{})
				expectRows(t, after, want, all(rows))
				if n := diskBytes(t, dir); n > m.PageTotal*8/5+100*block {
					t.Fatalf("%d bytes of files for %d of pages", n, m.PageTotal)
				}
			}
			if whole == 0 || whole > 8 {
				t.Errorf("%d of 24 times the whole table of %d pages was written", whole, first.Pages)
			}
			expectRows(t, original, packed, all(rows))
			place := NewMemory()
			if _, err := Copy(t.Context(), openDir(t, dir, FileOptions{}).stores[0], place.Writer(), nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRewrite_NothingHalf: whatever write fails, the old generation is whole, and the next try succeeds.
func TestRewrite_NothingHalf(t *testing.T) {
	groupsOf(t, 500_000)
	filesOf(t, 700_000)
	const rows, rowBytes = 10_000, 128
	dir := filepath.Join(t.TempDir(), "table")
	want, changed := floats(rows, 32, 1), floats(rows, 32, 2)
	packFiles(t, dir, want, rowBytes, PackOptions{Codec: "none", Stage: "none", PageBytes: 64 << 10})
	r := rand.New(rand.NewPCG(5, 5))
	write, sync := writeTo, syncFile
	defer func() { writeTo, syncFile = write, sync }()
	failed := 0
	for fail := 0; ; fail++ {
		calls := 0
		broken := func() bool { calls++; return calls == fail+1 }
		writeTo = func(f *os.File, b []byte) (int, error) {
			if broken() {
				n, _ := write(f, b[:len(b)/2])
				return n, syscall.ENOSPC
			}
			return write(f, b)
		}
		syncFile = func(f *os.File) error {
			if broken() {
				return syscall.EIO
			}
			return nil
		}
		_, done, err := rewriteSome(t, dir, r, 3000, 3500, 10, changed, want, rowBytes)
		writeTo, syncFile = write, sync
		expectRows(t, openDir(t, dir, FileOptions{}), want, all(rows))
		if err == nil {
			if calls > fail {
				t.Fatalf("the failure of call %d is not reported", fail)
			}
			if done.Pages > 3 {
				t.Errorf("%+v", done)
			}
			break
		}
		failed++
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if folders, _ := filepath.Glob(filepath.Join(dir, "g*")); len(folders) != 1 {
			t.Fatalf("left behind: %v", folders)
		}
	}
	if failed < 4 {
		t.Errorf("%d writes failed", failed)
	}
}

// TestRewrite_LinkFails: on file systems without links all pages are written.
func TestRewrite_LinkFails(t *testing.T) {
	const rows, rowBytes = 5000, 128
	dir := filepath.Join(t.TempDir(), "table")
	want := floats(rows, 32, 1)
	packFiles(t, dir, want, rowBytes, PackOptions{Codec: "none", PageBytes: 64 << 10})
	link = func(string, string) error { return syscall.EPERM }
	defer func() { link = os.Link }()
	m, done, err := rewriteSome(t, dir, rand.New(rand.NewPCG(1, 1)), 0, rows, 5, floats(rows, 32, 2), want, rowBytes)
	if err != nil || done.Pages != m.Pages || done.Bytes != m.PageTotal {
		t.Errorf("%+v, %v", done, err)
	}
	expectRows(t, openDir(t, dir, FileOptions{}), want, all(rows))
}

// TestPlaces_Refuses: places that are not those of the index are an error.
func TestPlaces_Refuses(t *testing.T) {
	x := &index{pages: []indexPage{{5000, 0}, {4096, 0}, {100, 0}}}
	var l placeList
	for i, p := range []place{{0, 0}, {0, 2}, {3, 7}} {
		l.add(p, x.length(uint32(i)))
	}
	good := l.encode()
	places, err := parsePlaces(good, x)
	if err != nil || !slices.Equal(places, []place{{0, 0}, {0, 2}, {3, 7}}) || len(l.extents) != 2 || !slices.Equal(placedFiles(places), []bool{true, false, false, true}) {
		t.Fatalf("%v, %v", places, err)
	}
	sum := func(b []byte) []byte {
		return binary.LittleEndian.AppendUint32(b[:len(b)-4:len(b)-4], checksum(b[:len(b)-4]))
	}
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"cut":        {func(b []byte) []byte { return b[:len(b)-1] }, "wrong length or checksum"},
		"short":      {func(b []byte) []byte { return b[:10] }, "not a file of places"},
		"magic":      {func(b []byte) []byte { b[0]++; return sum(b) }, "not a file of places"},
		"version":    {func(b []byte) []byte { b[7]++; return sum(b) }, "version (2) must be 1"},
		"changed":    {func(b []byte) []byte { b[20]++; return b }, "wrong length or checksum"},
		"too few":    {func(b []byte) []byte { b[12] = 1; return sum(b) }, "pages (2) must be 3"},
		"too many":   {func(b []byte) []byte { b[12] = 3; return sum(b) }, "is not possible"},
		"none":       {func(b []byte) []byte { b[12] = 0; return sum(b) }, "is not possible"},
		"file":       {func(b []byte) []byte { b[18] = 1; return sum(b) }, "is not possible"},
		"far behind": {func(b []byte) []byte { copy(b[20:], "\xff\xff\xff\xff"); return sum(b) }, "must be below 2^32"},
	} {
		if _, err := parsePlaces(c.change(bytes.Clone(good)), x); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzParsePlaces: bytes that are taken for places are those of these places, and name each page once.
func FuzzParsePlaces(f *testing.F) {
	x := &index{pages: []indexPage{{5000, 0}, {4096, 0}, {100, 0}}}
	var l placeList
	l.add(place{1, 1}, 5000)
	l.add(place{0, 2}, 4096)
	l.add(place{0, 3}, 100)
	f.Add(l.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			b = binary.LittleEndian.AppendUint32(b[:len(b)-4:len(b)-4], checksum(b[:len(b)-4]))
		}
		places, err := parsePlaces(b, x)
		if err == nil && len(places) != len(x.pages) {
			t.Errorf("%d places", len(places))
		}
	})
}
