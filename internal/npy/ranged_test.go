package npy

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
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
	little, big := file(1, dict("'<f4'", "False", "(10, 50, 6)"), data), file(1, dict("'>f4'", "False", "(10, 50, 6)"), swapped)
	for name, b := range map[string][]byte{
		"little.npy": little, "big.npy": big,
		"little.npz": archiveOf(t, member{"pad", zip.Store, data[:5]}, member{"features.npy", zip.Store, little}),
		"big.npz":    archiveOf(t, member{"features.npy", zip.Store, big}, member{"more.npy", zip.Deflate, little}),
	} {
		r, err := Open(save(t, name, b), 2, "features")
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
						t.Errorf("%s: %d bytes of rows from %d: %v, or others", name, len(got), from, err)
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

// TestRanged_InOrderOnly: where bytes depend on others there is no Ranged.
func TestRanged_InOrderOnly(t *testing.T) {
	array := written(t, dtype.Uint8, []int{10, 8}, sequence(80))
	for name, b := range map[string][]byte{
		"fortran.npz":  archiveOf(t, member{"features.npy", zip.Store, file(1, dict("'|u1'", "True", "(10, 8)"), sequence(80))}),
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

// TestRanged_CRC: a stored member's CRC is checked whatever the order and number of the calls that read it, and only the call that completes it fails.
func TestRanged_CRC(t *testing.T) {
	const rows, rowBytes = 1000, 24
	array := written(t, dtype.Float32, []int{rows, rowBytes / 4}, sequence(rows*rowBytes))
	good := archiveOf(t, member{"features.npy", zip.Store, array})
	begin := bytes.Index(good, array)
	random := rand.New(rand.NewPCG(7, 7))
	for name, change := range map[string]int{
		"sound": -1, "header": begin + 100, "first byte": begin + 128, "middle": begin + len(array)/2, "last byte": begin + len(array) - 1,
	} {
		b := bytes.Clone(good)
		if change >= 0 {
			b[change] ^= ' ' ^ '\t' // white space in the header stays white space
		}
		path := save(t, "a.npz", b)
		for _, n := range []int{1, 7, rows / 2, rows} { // rows of a call
			r, err := Open(path, 2)
			if err != nil {
				t.Fatal(err)
			}
			ranged := r.Ranged()
			calls := random.Perm((rows + n - 1) / n)
			for i, call := range calls {
				row := call * n
				buf := make([]byte, min(n, rows-row)*rowBytes)
				err := ranged.ReadFrom(int64(row), buf)
				if i == len(calls)-1 && change >= 0 {
					if !errors.Is(err, zip.ErrChecksum) {
						t.Errorf("%s, %d rows a call: the last call returns %v", name, n, err)
					}
					checkText(t, err, "a.npz:features: reading all 24000 data bytes")
				} else if err != nil {
					t.Errorf("%s, %d rows a call: call %d of %d: %v", name, n, i, len(calls), err)
				}
				if err := ranged.ReadFrom(int64(row), buf); err != nil && change < 0 { // again
					t.Errorf("%s: rows from %d for the second time: %v", name, row, err)
				}
			}
			r.Close()
		}
	}
}

// TestRanged_MemberEndsEarly: an archive that is cut after it was opened.
func TestRanged_MemberEndsEarly(t *testing.T) {
	array := written(t, dtype.Uint8, []int{1000, 8}, sequence(8000))
	b := archiveOf(t, member{"features.npy", zip.Store, array})
	path := save(t, "a.npz", b)
	r, err := Open(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	begin := bytes.Index(b, array) + 128
	for _, c := range []struct {
		size int
		want string
	}{
		{begin + 5000, fmt.Sprintf("a.npz:features: reading at byte %d: data bytes (5000) must be 8000", begin+5000)},
		{100, fmt.Sprintf("a.npz:features: reading at byte %d: data bytes (0) must be 8000", begin)},
	} {
		if err := os.Truncate(path, int64(c.size)); err != nil {
			t.Fatal(err)
		}
		checkText(t, r.Ranged().ReadFrom(0, make([]byte, 8000)), c.want)
	}
}

func TestCombine_EqualsWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	for range 200 {
		n := random.IntN(1 << random.IntN(21))
		cut := random.IntN(n + 1)
		want := crc32.ChecksumIEEE(data[:n])
		if got := combine(crc32.ChecksumIEEE(data[:cut]), crc32.ChecksumIEEE(data[cut:n]), int64(n-cut)); got != want {
			t.Fatalf("%d and %d bytes: %#x, want %#x", cut, n-cut, got, want)
		}
	}
	// Long pieces, doubled step by step.
	long := crc32.ChecksumIEEE(make([]byte, 1<<20))
	for n := int64(1 << 20); n < 1<<40; n *= 2 {
		long = combine(long, long, n)
	}
	if got, want := combine(combine(1, long, 1<<40), long, 1<<40), combine(1, combine(long, long, 1<<40), 1<<41); got != want {
		t.Errorf("pieces joined in another order: %#x, want %#x", got, want)
	}
}
