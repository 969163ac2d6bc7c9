package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// canceling cancels a context at the step of that number of the stage whose name begins so.
type canceling struct {
	stage  string
	steps  int
	cancel func()
	now    string
	left   int
}

func (c *canceling) Stage(name string, _ int) {
	if c.now, c.left = name, c.steps; strings.HasPrefix(name, c.stage) && c.steps == 0 {
		c.cancel()
	}
}

func (c *canceling) Step() {
	if c.left--; strings.HasPrefix(c.now, c.stage) && c.left == 0 {
		c.cancel()
	}
}

// TestRun_Partial: an interrupted run reports the batches that were measured, and nothing before the first.
func TestRun_Partial(t *testing.T) {
	c := NewConfig()
	c.Vertices, c.Batches, c.TrainBatches, c.BatchSize, c.Codec, c.Verify = 2000, 20, 4, 16, "ibp4", true
	for _, at := range []struct {
		stage       string
		steps, want int
	}{
		{"measuring (ibp4)", 3, 3}, {"measuring (none)", 3, 20}, {"loading and training (none)", 0, 20}, {"loading and training (ibp4)", 0, 0},
		{"measuring (ibp4)", 0, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		stage, want := canceling{stage: at.stage, steps: at.steps, cancel: cancel}, at.want
		r, err := Run(ctx, c, &stage)
		if want == 0 {
			if r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %+v, %v", stage.stage, r, err)
			}
			continue
		}
		if err != nil || !r.Partial || r.Workload.Batches != want || r.Workload.PlannedBatches != 20 {
			t.Fatalf("%s: %+v, %v", stage.stage, r, err)
		}
		q := &r.Results
		if q.Lookups != r.Workload.IDs || q.Hits+q.Misses != q.Lookups || q.Lookups < int64(want) || r.VerifiedRows != q.Lookups || r.Mismatches != 0 || r.Uncompressed != (Uncompressed{}) {
			t.Errorf("%s: %+v", stage.stage, r)
		}
	}
	if r, err := Run(t.Context(), c, Quiet{}); err != nil || r.Partial || r.Workload.PlannedBatches != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunTables_Partial: likewise with several tables.
func TestRunTables_Partial(t *testing.T) {
	var names []string
	for _, rows := range []int{300, 200} {
		name := filepath.Join(t.TempDir(), "t.npy")
		header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 16), }", rows)
		header += strings.Repeat(" ", 117-len(header)) + "\n"
		if err := os.WriteFile(name, append([]byte("\x93NUMPY\x01\x00\x76\x00"+header), make([]byte, rows*64)...), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	c := NewConfig()
	c.Features, c.Batches, c.TrainBatches, c.BatchSize, c.Codec, c.Verify = strings.Join(names, ","), 20, 4, 16, "sleek-eb:0.01", true
	for _, at := range []struct {
		stage       string
		steps, want int
	}{
		{"measuring (sleek-eb:0.01)", 3, 3}, {"measuring (none)", 3, 20}, {"loading and training (none)", 0, 20}, {"loading and training (sleek-eb:0.01)", 0, 0},
		{"", 1000, 20},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := RunTables(ctx, c, &canceling{stage: at.stage, steps: at.steps, cancel: cancel})
		if cancel(); at.want == 0 {
			if r != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %+v, %v", at.stage, r, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", at.stage, err)
		}
		partial, planned := at.stage != "", 0
		if partial {
			planned = 20
		}
		w, total := &r.Workload, &r.Total
		if r.Partial != partial || w.Batches != at.want || w.PlannedBatches != planned || total.Lookups != int64(at.want*2*16) || (total.Uncompressed.Lookups == 0) != partial ||
			(total.PredictedGPU != nil && partial) || r.VerifiedRows != total.Lookups || r.Mismatches != 0 || r.VerifiedBound != 0.01 {
			t.Errorf("%s: %+v", at.stage, r)
		}
	}
}

// TestRun_VerifiesTheBound of a codec that changes elements.
func TestRun_VerifiesTheBound(t *testing.T) {
	c := NewConfig()
	c.Vertices, c.Batches, c.TrainBatches, c.BatchSize, c.Codec, c.Verify = 2000, 4, 4, 16, "sleek-eb:0.01", true
	r, err := Run(t.Context(), c, Quiet{})
	if err != nil || r.VerifiedBound != 0.01 || r.VerifiedRows == 0 || r.Mismatches != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	// A tighter bound does not hold.
	strict := &run{cfg: c, table: tableOf(2, 8)}
	strict.table.DType = dtype.Float32
	strict.table.Data = make([]byte, 16)
	off := make([]byte, 16)
	off[15] = 0x3f // 0.5 instead of 0
	if strict.verify(strict.table, []int64{0, 1}, off, 0.01); strict.verified != 2 || strict.mismatches != 1 {
		t.Errorf("%d of %d differ", strict.mismatches, strict.verified)
	}
}
