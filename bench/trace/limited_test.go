package trace

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// TestLimited: requests that are too many for the memory are an error, after those that were not; others are read to the end.
func TestLimited(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says how much memory there is")
	}
	w, err := workload.NewMix(workload.MixOptions{Rows: 10, BatchSize: 1 << 16, Batches: 20})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]Request, 4096)
	read := func(bytes float64) (total int, err error) {
		r := Limited(FromWorkload(w, 1), "--trace", "x", bytes)
		for err == nil {
			var n int
			n, err = r.Read(buf)
			total += n
		}
		return total, err
	}
	if n, err := read(1e-3); n != 20<<16 || !errors.Is(err, io.EOF) {
		t.Errorf("%d requests, %v", n, err)
	}
	if n, err := read(1e15); n != 1<<20 || err == nil || !strings.HasPrefix(err.Error(), "--trace (x) needs about ") {
		t.Errorf("%d requests, %v", n, err)
	}
	if _, err := Summarize(context.Background(), Limited(FromWorkload(w, 1), "trace", "x", 1e15)); err == nil {
		t.Error("no error of a summary")
	}
}
