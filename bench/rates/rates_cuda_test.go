//go:build cuda && linux

package rates

import (
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestMeasure_GPU: rates of one GPU and of several are there, and pass what their file must.
func TestMeasure_GPU(t *testing.T) {
	gputest.Require(t)
	for _, gpus := range [][]int{{0}, nil} {
		m, err := Measure(Options{GPUs: gpus, Batch: 500, TableBytes: 1 << 20, Runs: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := len(m.Devices)
		if gpus != nil && n != 1 || m.Local <= 0 || m.Host <= 0 || m.Peer <= 0 || len(m.Pairs) > n*(n-1) {
			t.Errorf("GPUs %v: %+v", gpus, m)
		}
		for _, d := range m.Devices {
			if d.Local <= 0 || d.Host <= 0 {
				t.Errorf("%+v", d)
			}
		}
	}
}
