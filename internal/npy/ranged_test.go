package npy

import (
	"archive/zip"
	"bytes"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestRanged_AnyOrder: goroutines read rows in any order, of either byte order.
func TestRanged_AnyOrder(t *testing.T) {
	const rows, rowBytes = 500, 24
	data := sequence(rows * rowBytes)
	swapped := bytes.Clone(data)
	swapBytes(swapped, 4)
	for descr, stored := range map[string][]byte{"'<f4'": data, "'>f4'": swapped} {
		r, err := Open(save(t, "a.npy", file(1, dict(descr, "False", "(10, 50, 6)"), stored)), 2)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ranged := r.Ranged()
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 1))
				for range 200 {
					from := random.IntN(rows + 1)
					got := make([]byte, random.IntN(rows-from+1)*rowBytes)
					if err := ranged.ReadFrom(int64(from), got); err != nil || !bytes.Equal(got, data[from*rowBytes:][:len(got)]) {
						t.Errorf("%s: %d bytes of rows from %d: %v, or others", descr, len(got), from, err)
					}
				}
			})
		}
		wg.Wait()
		for _, bad := range []struct {
			row int64
			n   int
		}{{-1, rowBytes}, {rows, rowBytes}, {rows - 1, 2 * rowBytes}, {1 << 62, rowBytes}, {0, rowBytes - 1}} {
			checkText(t, ranged.ReadFrom(bad.row, make([]byte, bad.n)), "must be whole rows of 24 bytes below 500")
		}
	}
}

// TestRanged_InOrderOnly: where bytes depend on others, or a CRC is of all of them, there is no Ranged.
func TestRanged_InOrderOnly(t *testing.T) {
	array := written(t, dtype.Uint8, []int{10, 8}, sequence(80))
	for name, b := range map[string][]byte{
		"stored.npz":   archiveOf(t, member{"features.npy", zip.Store, array}),
		"deflated.npz": archiveOf(t, member{"features.npy", zip.Deflate, array}),
		"fortran.npy":  file(1, dict("'|u1'", "True", "(10, 8)"), sequence(80)),
	} {
		r, err := Open(save(t, name, b), 2)
		if err != nil {
			t.Fatal(err)
		}
		if r.Ranged() != nil {
			t.Errorf("%s can be read in any order", name)
		}
		r.Close()
	}
}

// TestRanged_FileChangesAfterOpen: errors name the file and the offset at which it ends.
func TestRanged_FileChangesAfterOpen(t *testing.T) {
	good := written(t, dtype.Uint8, []int{1000, 8}, sequence(8000))
	head := len(good) - 8000
	for _, c := range []struct {
		name       string
		size       int
		row, n     int
		want, also string
	}{
		{"shrinks", len(good) - 3000, 600, 100, "a.npy: reading at byte 5128: data bytes (5000) must be 8000", "truncated"},
		{"ends before the rows", len(good) - 3000, 900, 10, "a.npy: reading at byte 7328: data bytes (5000) must be 8000", "truncated"},
		{"grows", len(good) + 1, 990, 10, "a.npy: trailing bytes (1) must be 0", "shape (1000, 8)"},
		{"grows, but not read there", len(good) + 1, 980, 10, "", ""},
	} {
		path := save(t, "a.npy", good)
		r, err := Open(path, 2)
		if err != nil {
			t.Fatal(err)
		}
		if head != 128 {
			t.Fatalf("data begin at byte %d", head)
		}
		if err := os.Truncate(path, int64(c.size)); err != nil {
			t.Fatal(err)
		}
		err = r.Ranged().ReadFrom(int64(c.row), make([]byte, c.n*8))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else {
			checkText(t, err, c.want)
			checkText(t, err, c.also)
		}
		ranged := r.Ranged()
		r.Close()
		checkText(t, ranged.ReadFrom(0, make([]byte, 8)), "a.npy: reading at byte 128: ")
	}
}
