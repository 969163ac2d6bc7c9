//go:build cuda && linux

package kernels_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestGPU_LittleSharedMemory loads and fetches rows as on a GPU whose blocks have 99 KiB of shared memory, where eight
// warps of the longer rows do not fit: every row reads back.
func TestGPU_LittleSharedMemory(t *testing.T) {
	gputest.Require(t)
	defer kernels.LimitShared(99 << 10)()
	lengths := []int{2048, 4096, 6500, 8188, 8192, 20_000}
	if testing.Short() {
		lengths = []int{2048, 8188}
	}
	for _, rowBytes := range lengths {
		for _, codec := range []string{"none", "ibp4", "ibp8"} {
			t.Run(fmt.Sprintf("row=%d/%s", rowBytes, codec), func(t *testing.T) {
				rows := gputest.Few(300, 48)
				data := gputest.Rows("mixed", rows, rowBytes, 1)
				table, err := cache.FromBytes("x", dtype.Uint8, data, rowBytes)
				if err != nil {
					t.Fatal(err)
				}
				c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: int64(len(data) / 4), Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: cache.Codec(codec)})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				ids := make([]int64, rows)
				for i := range ids {
					ids[i] = int64(i * 7 % rows)
				}
				out := make([]byte, len(data))
				if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
					t.Fatal(err)
				}
				for i, id := range ids {
					if !bytes.Equal(out[i*rowBytes:][:rowBytes], data[int(id)*rowBytes:][:rowBytes]) {
						t.Fatalf("row %d differs", id)
					}
				}
			})
		}
	}
}
