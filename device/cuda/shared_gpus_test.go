//go:build cuda && linux

package cuda_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/sharetest"
)

// TestGPUs_SharedOwnerKilled: the reader has opened another GPU only than the one whose memory it reads.
func TestGPUs_SharedOwnerKilled(t *testing.T) {
	gputest.RequireGPUs(t, 2)
	t.Setenv(readerGPU, "1")
	sharetest.OwnerKilled(t)
}

// TestGPUs_SharedPeers: the kernels of every GPU read shared memory of every other, as allocated and as imported by each of them.
func TestGPUs_SharedPeers(t *testing.T) {
	gputest.RequireGPUs(t, 2)
	gpus, err := cuda.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer gpus[0].Close()
	defer gpus[1].Close()
	const bytes = 1 << 20
	for i, owner := range gpus {
		m, err := owner.(device.Sharer).AllocShared(bytes, "slab")
		if err != nil {
			t.Fatal(err)
		}
		defer owner.Free(m)
		want := make([]byte, bytes)
		want[0], want[bytes-1] = byte(i+1), byte(i+3)
		if err := device.Upload(owner, m, want); err != nil {
			t.Fatal(err)
		}
		f, err := owner.(device.Sharer).Export(m)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		from := map[string]device.Buffer{"allocated": m}
		for j, by := range gpus {
			taken, err := by.(device.Sharer).Import(f, bytes, j == 0, "slab")
			if err != nil {
				t.Fatal(err)
			}
			defer by.Free(taken)
			from["imported by "+strconv.Itoa(j)] = taken
		}
		for j, reader := range gpus {
			for what, b := range from {
				if got, err := shared.Read(reader, b); err != nil || !slices.Equal(got, want) {
					t.Errorf("memory of GPU %d, %s, read by %d: error %v", i, what, j, err)
				}
			}
		}
	}
}
