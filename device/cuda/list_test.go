package cuda_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

func TestList_DescribesGPUs(t *testing.T) {
	gputest.Require(t)
	gpus, version, err := cuda.List()
	if err != nil || len(gpus) != cuda.Count() {
		t.Fatalf("%d GPUs of %d: %v", len(gpus), cuda.Count(), err)
	}
	for _, g := range gpus {
		t.Logf("%+v, CUDA %d.%d", g, version/1000, version%1000/10)
		if g.Name == "" || g.MemoryBytes < 1<<30 || g.Major < 1 || g.PCI == "" {
			t.Errorf("%+v", g)
		}
	}
}
