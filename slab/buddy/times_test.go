package buddy

import (
	"math"
	"testing"
)

// Rows of host memory at random addresses, 200,000 a batch, on an H200: GB/s of rows in a region of 2 GB and in one of 16 GB.
var randomReads = []struct {
	rowBytes     int
	small, large float64
}{{256, 15, 7.9}, {512, 27.8, 15.2}, {1024, 47.4, 29.3}, {4096, 50, 49.6}}

func TestLink_PredictsTranslation(t *testing.T) {
	l := HostLink(0)
	for _, c := range randomReads {
		for region, measured := range map[int64]float64{2e9: c.small, 16e9: c.large} {
			seconds := l.Seconds(c.rowBytes, c.rowBytes, region/int64(c.rowBytes))
			if off := float64(c.rowBytes) / (measured * 1e9) / seconds; math.Abs(off-1) > 0.2 {
				t.Errorf("%d B in %d GB: measured %.1f ns, predicted %.1f", c.rowBytes, region/1e9, float64(c.rowBytes)/measured, 1e9*seconds)
			}
		}
	}
}

// A longer target never makes a row slower, as Choose takes for granted, and what is behind the end of a sector costs another one.
func TestLink_LongerTargetsAreFaster(t *testing.T) {
	for _, l := range []Link{HostLink(0), HostLink(20e9), PeerLink()} {
		for _, rows := range []int64{1e5, 1e7, 1e9} {
			for _, stored := range []int{17, 100, 333, 1024} {
				before := math.Inf(1)
				for target := MinTarget; target < stored; target += MinTarget {
					now := l.Seconds(stored-target, Over(target, 1024), rows)
					if now > before*(1+1e-12) {
						t.Fatalf("%d B of %d rows: %.3g s with a target of %d B, %.3g with one 16 B shorter", stored, rows, now, target, before)
					}
					before = now
				}
			}
		}
		if one, two := l.Seconds(32, 64, 1), l.Seconds(33, 64, 1); math.Abs(two-one-l.Sector) > 1e-15 {
			t.Errorf("32 B take %v s, 33 B %v", one, two)
		}
		if one, half := l.Seconds(32, 96, 1), l.Seconds(32, 48, 1); math.Abs(half-one-l.Sector/2) > 1e-15 { // every second place of 48 bytes begins in the middle
			t.Errorf("32 B take %v s, %v where places are 48 B apart", one, half)
		}
	}
	if slow, fast := HostLink(10e9), HostLink(0); slow.Seconds(4096, 4096, 1) < 5*fast.Seconds(4096, 4096, 1) {
		t.Error("a link of 10 GB/s is as fast as one of 55")
	}
}
