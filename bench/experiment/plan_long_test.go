//go:build long

package experiment

import (
	"fmt"
	"testing"
)

// TestLong_PlanPredicts the default workload and real data, for more targets and policies than the short tests.
func TestLong_PlanPredicts(t *testing.T) {
	for _, target := range []float64{0.2, 0.35} {
		t.Run(fmt.Sprintf("default/%g", target), func(t *testing.T) {
			c := NewPlanConfig()
			c.Target = target
			checkPrediction(t, c)
		})
	}
	for _, name := range []string{"cora.npz", "reddit.npz"} {
		for _, target := range []float64{0.1, 0.3, 0.6, 0.8} {
			t.Run(fmt.Sprintf("%s/%g", name, target), func(t *testing.T) {
				c := NewPlanConfig()
				c.Features = dataFile(t, name)
				c.Graph, c.Target = c.Features, target
				// Several workers observe a batch in an order that varies, which moves policies by recency by up to 2 points.
				c.Workers = 1
				c.Policies = []string{"freq", "tinylfu", "lru", "glru-2q", "glru-arc", "static-freq", "static-optimal"}
				checkPrediction(t, c)
			})
		}
	}
}
