package read

import (
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
)

// TestScratch_Bounded takes and gives back buffers of random sizes: they are large enough, never more than the bound in all,
// and a batch that is alone always gets one.
func TestScratch_Bounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var s scratch
	var out []device.Buffer
	all, largest, refused, reused := int64(0), int64(0), 0, 0
	for range 20_000 {
		if len(out) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(out))
			s.give(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
			continue
		}
		bytes := listBytes * int64(1+r.IntN(1<<(4+r.IntN(18))))
		largest = max(largest, bytes)
		b, size, drop, ok := s.take(bytes)
		if !ok {
			refused++
			if len(out) == 0 {
				t.Fatalf("%d bytes refused with none taken", bytes)
			}
			continue
		}
		for _, b := range drop {
			all -= b.Size()
		}
		if size > 0 {
			b = device.DeviceBuffer(1, size)
			all += size
		} else {
			reused++
		}
		if b.Size() < bytes {
			t.Fatalf("%d bytes for %d", b.Size(), bytes)
		}
		if all != s.bytes || all > scratchSpare+largest {
			t.Fatalf("%d bytes in all, %d counted, at most %d allowed", all, s.bytes, scratchSpare+largest)
		}
		out = append(out, b)
	}
	if refused == 0 || reused == 0 {
		t.Errorf("%d refused, %d reused", refused, reused)
	}
	if _, size, _, ok := s.take(0); size != 0 || !ok {
		t.Error("no bytes are refused")
	}
}
