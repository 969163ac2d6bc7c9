package workload

import (
	"slices"
	"testing"
)

func TestReplay_CutsIntoBatches(t *testing.T) {
	ids := []int64{5, 5, 1, 2, 9, 0, 3}
	for _, size := range []int{1, 2, 3, 6, 7, 8, 1 << 62} {
		w, err := NewReplay(ids, size)
		if err != nil {
			t.Fatal(err)
		}
		if w.Kind() != "ids" {
			t.Errorf("kind %q", w.Kind())
		}
		c := w.NewCursor()
		var got []int64
		for i := range w.Batches() {
			before := len(got)
			got = c.Batch(i, got)
			if n := len(got) - before; n != size && i < w.Batches()-1 || n < 1 || n > size {
				t.Errorf("size %d: batch %d has %d rows", size, i, n)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("size %d: %v", size, got)
		}
		last := w.Batches() - 1
		if again := c.Batch(last, nil); !slices.Equal(again, got[len(got)-len(again):]) {
			t.Errorf("size %d: last batch %v when asked again", size, again)
		}
	}
}

func TestReplay_Errors(t *testing.T) {
	if _, err := NewReplay[int64](nil, 4); err == nil || err.Error() != "workload: replay: row numbers (0) must be at least 1" {
		t.Errorf("no ids: %v", err)
	}
	if _, err := NewReplay([]int64{1}, 0); err == nil || err.Error() != "workload: replay: batch size (0) must be at least 1" {
		t.Errorf("no batch size: %v", err)
	}
}
