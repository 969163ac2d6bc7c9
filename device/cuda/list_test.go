package cuda_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

func TestList_DescribesGPUs(t *testing.T) {
	gputest.Require(t)
	gpus, err := cuda.List()
	if err != nil || len(gpus) != cuda.Count() {
		t.Fatalf("%d GPUs of %d: %v", len(gpus), cuda.Count(), err)
	}
	for _, g := range gpus {
		t.Logf("%+v, %s", g, cuda.Driver())
		if g.Name == "" || g.FreeBytes < 1<<20 || g.MemoryBytes < g.FreeBytes || g.ComputeCapability < "7.0" || g.PCIBusID == "" {
			t.Errorf("%+v", g)
		}
	}
}
