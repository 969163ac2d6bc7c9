package cache_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// residentImages returns what the memory of a resident table holds after New, after updates, and after moves to other targets.
func residentImages(t *testing.T, codec cache.Codec, rowBytes, devices int, more func(*cache.Options)) (all []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(22, uint64(90+rowBytes)))
	each := 70 * devices
	data := classesOfRows(r, each, rowBytes, 0, 1, 0.3)
	rows := len(data) / rowBytes
	c := openResident(t, data, rowBytes, codec, cache.ResidentOptions{Target: max(16, rowBytes/3&^15), MaxTarget: buddy.MaxTarget(rowBytes)}, devices, func(o *cache.Options) {
		o.Host.Overlay = 1 << 20
		more(o)
	})
	image := func() { all = append(all, cache.ResidentImage(t, c, 0)) }
	image()
	for _, n := range []int{rows / 3, rows} { // the second batch is long enough for a GPU to encode
		ids := make([]int64, n)
		for i, id := range r.Perm(rows)[:n] {
			ids[i] = int64(id)
		}
		fresh := residentRows(n, rowBytes, r)
		slices.Sort(ids)
		if err := c.Update(ctx, 0, ids, fresh); err != nil {
			t.Fatal(err)
		}
		image()
	}
	fresh := classesOfRows(r, each, rowBytes, 1, 0, 0)
	if err := c.Update(ctx, 0, allRows(rows), fresh); err != nil {
		t.Fatal(err)
	}
	for _, target := range []int{buddy.MaxTarget(rowBytes), 16, 0} {
		if err := c.Retarget(ctx, 0, target); err != nil {
			t.Fatal(err)
		}
		image()
	}
	checkModel(t, c, fresh, rowBytes)
	return all
}

// TestGPU_ResidentImage: the words, slots and overflow places of a resident table are the same bytes on a GPU and on the host, when it is loaded, after updates that
// processors and that the GPU encode, and after moves to one target and to several.
func TestGPU_ResidentImage(t *testing.T) {
	gputest.Require(t)
	for i, codec := range []cache.Codec{"ibp4", "rank", "none", "zipnn", "sparse"} {
		rowBytes := []int{256, 512, 100, 64, 1024}[i]
		t.Run(fmt.Sprintf("%s/%d", codec, rowBytes), func(t *testing.T) {
			want := residentImages(t, codec, rowBytes, 1, func(*cache.Options) {})
			got := residentImages(t, codec, rowBytes, 1, onBackend(cache.BackendCUDA))
			for i := range want {
				if want[i] != got[i] {
					a, b := bytes.Split([]byte(want[i]), []byte("\n")), bytes.Split([]byte(got[i]), []byte("\n"))
					for j := range min(len(a), len(b)) {
						if !bytes.Equal(a[j], b[j]) {
							t.Fatalf("image %d:\nhost %s\nGPU  %s", i, a[j], b[j])
						}
					}
					t.Fatalf("image %d has %d lines on the host, %d on the GPU", i, len(a), len(b))
				}
			}
		})
	}
}

func onBackend(b cache.Backend) func(*cache.Options) {
	return func(o *cache.Options) { o.Devices.Backend = b }
}

// The bytes of a small table of two devices, as docs/format/buddy.md has them: compressed and raw rows, rows in two parts, and, after Retarget, another range.
func TestResident_GoldenImage(t *testing.T) {
	const rowBytes = 40
	data := make([]byte, 6*rowBytes)
	for i := range data {
		if row := i / rowBytes; row%2 == 1 {
			data[i] = byte(i * 37)
		} else {
			data[i] = byte(row)
		}
	}
	c := openResident(t, data, rowBytes, "ibp4", cache.ResidentOptions{Target: 16, MaxTarget: 48}, 2, nil)
	if got := cache.ResidentImage(t, c, 0); got != goldenImage {
		t.Errorf("loaded:\n%s\nwant\n%s", got, goldenImage)
	}
	if err := c.Retarget(ctx, 0, 48); err != nil {
		t.Fatal(err)
	}
	if got := cache.ResidentImage(t, c, 0); got != goldenMoved {
		t.Errorf("moved:\n%s\nwant\n%s", got, goldenMoved)
	}
}

const goldenImage = `device 0
row 0 word 0002780000000001 slot 44000000000000000000000000000000 over 0000000000000000000000000000000000000000000000
row 2 word 0000000000000001 slot 02020202020202020202020202020202 over 020202020202020202020202020202020202020202020202
row 4 word 0000000000000001 slot 04040404040404040404040404040404 over 040404040404040404040404040404040404040404040404
device 1
row 1 word 0001680000000001 slot ffd333a1f2cff3c5eabccf18b51fdf7e over fb8171fb0203
row 3 word 0001880000000001 slot bfe7ccce04f7fc9ece35347f4668e87a over 8d1fa1fb21e1f601
row 5 word 0001680000000001 slot ff1b56333bdef5e7f2be58a1f9b1e7bf over 1f13ba1f2404
`

const goldenMoved = `device 0
row 0 word 0002780000000003 slot 440000000000000000000000000000000000000000000000000000000000000000000000000000
row 2 word 0000000000000003 slot 02020202020202020202020202020202020202020202020202020202020202020202020202020202
row 4 word 0000000000000003 slot 04040404040404040404040404040404040404040404040404040404040404040404040404040404
device 1
row 1 word 0001680000000003 slot ffd333a1f2cff3c5eabccf18b51fdf7efb8171fb0203
row 3 word 0001880000000003 slot bfe7ccce04f7fc9ece35347f4668e87a8d1fa1fb21e1f601
row 5 word 0001680000000003 slot ff1b56333bdef5e7f2be58a1f9b1e7bf1f13ba1f2404
`
