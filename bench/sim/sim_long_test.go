//go:build long

package sim

import (
	"testing"

	"github.com/tensorcache/tensorcache/cache/admission"
)

// TestLong_DefaultPolicyTargets is on a fifth of the default workload: from an empty cache, after 50 batches, within 2 points of
// static-optimal; with another hot set every 200 batches, 0.9 of each phase's own static-optimal.
func TestLong_DefaultPolicyTargets(t *testing.T) {
	for phases, least := range map[int]func(optimal float64) float64{
		1: func(optimal float64) float64 { return optimal - 0.02 },
		3: func(optimal float64) float64 { return 0.9 * optimal },
	} {
		s, err := Generated(100_000, 50, 200, phases)
		if err != nil {
			t.Fatal(err)
		}
		p := newPolicy(t, admission.Default)
		out, err := Run(s, p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		optimal := Optimal(s).HitRatio()
		t.Logf("%s: hit ratio %.4f, static-optimal %.4f", s.Name, out.HitRatio(), optimal)
		if out.HitRatio() < least(optimal) {
			t.Errorf("%s: hit ratio %.4f, static-optimal %.4f", s.Name, out.HitRatio(), optimal)
		}
	}
}
