package demand

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// TestTrace_WorkingSetIsTheSummarys: trace info and simulate count the working set alike, of rows whose sizes change, that are only
// written, and that are deleted first.
func TestTrace_WorkingSetIsTheSummarys(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := make([]trace.Request, 300)
		for i := range all {
			all[i] = trace.Request{ID: r.Uint64N(80), Size: 1 + r.Int64N(1000), Op: trace.Op(r.IntN(3)), Next: trace.Unknown}
			if all[i].Op == trace.Delete {
				all[i].Size = 0
			}
		}
		gets := map[uint64]int{}
		for _, q := range all {
			if q.Op == trace.Get {
				gets[q.ID]++
			}
		}
		once := int64(0)
		for _, n := range gets {
			if n == 1 {
				once++
			}
		}
		of := requests(all)
		summary, err := trace.Summarize(context.Background(), &of)
		if err != nil {
			t.Fatal(err)
		}
		of = requests(all)
		loaded, err := Load("x", &of)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := int64(summary.WorkingSetBytes), loaded.WorkingSet(); got != want || want == 0 {
			t.Errorf("seed %d: trace info counts %d bytes, simulate %d", seed, got, want)
		}
		if summary.IDs != int64(len(gets)) || summary.OnceIDs != once {
			t.Errorf("seed %d: %d IDs in gets, %d once, want %d and %d", seed, summary.IDs, summary.OnceIDs, len(gets), once)
		}
	}
}
