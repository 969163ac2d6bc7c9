package faults

import (
	"errors"
	"io"
	"testing"
)

func TestList_ReportsAll(t *testing.T) {
	t.Parallel()
	f := List{Prefix: "x: "}
	f.If(false, "not %d", 1)
	f.Add(nil)
	if err := f.Err(); err != nil {
		t.Errorf("no fault: %v", err)
	}
	f.If(true, "rows (%d) must be at least 1", 0)
	f.Add(io.EOF)
	f.Addf("%w", io.ErrNoProgress)
	if err := f.Err(); err == nil || err.Error() != "x: rows (0) must be at least 1\nEOF\nx: "+io.ErrNoProgress.Error() || !errors.Is(err, io.EOF) || !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
}
