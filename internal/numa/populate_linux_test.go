package numa

import (
	"bytes"
	"testing"
)

// TestMemory_Populate: pages are on a node before they are written, and zeroed.
func TestMemory_Populate(t *testing.T) {
	m, err := Alloc(200<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	b := m.Bytes()
	if held, err := Where(b); err != nil || len(held) != 0 {
		t.Fatalf("before: %v, error %v", held, err)
	}
	m.Populate()
	held, err := Where(b)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, h := range held {
		sum += h.Bytes
	}
	if sum != int64(len(b)) {
		t.Errorf("%d of %d bytes are on nodes", sum, len(b))
	}
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("the memory is not zeroed")
	}
}
