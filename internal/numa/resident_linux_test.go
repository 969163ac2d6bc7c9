package numa_test

import (
	"testing"

	"github.com/tensorcache/tensorcache/internal/numa"
)

func TestResident(t *testing.T) {
	before, _, err := numa.Resident()
	if err != nil {
		t.Fatal(err)
	}
	const bytes = 64 << 20
	m := alloc(t, bytes, nil)
	m.Populate()
	for i := 0; i < bytes; i += 4096 {
		m.Bytes()[i] = 1
	}
	now, most, err := numa.Resident()
	if err != nil || now < before+bytes*9/10 || most < now-4<<20 {
		t.Errorf("%d bytes before, %d with %d more, at most %d: %v", before, now, bytes, most, err)
	}
	m.Free()
	// Linux counts pages by processor and sums them up later, so that the most may come out a little lower than before.
	if after, still, err := numa.Resident(); err != nil || after > now-bytes*9/10 || still < most-4<<20 {
		t.Errorf("%d bytes after, at most %d: %v", after, still, err)
	}
}
