package report

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// TestCompress_Repeats: a line says where a general compressor saves 5 points more than every lossless codec, and only there.
func TestCompress_Repeats(t *testing.T) {
	result := func(codec string, saving, decode float64) experiment.CodecResult {
		return experiment.CodecResult{Codec: codec, Rows: 10, RowBytes: 64, SavingPercent: saving, DecodeGBPerSecond: decode, RoundTrip: "ok"}
	}
	lossy := result("sleek-eb:0.1", 90, 1)
	lossy.RoundTrip = experiment.RoundTripLossy
	for want, results := range map[string][]experiment.CodecResult{
		"zstd saves 5.8 points more than sparse, the best codec, and decodes 0.35 GB/s on one core (sparse: 2.00)": {
			result("rank", 40, 1), result("sparse", 75.1, 2), result("zstd", 80.9, 0.35), result("lz4", 60, 2), lossy,
		},
		"": {result("rank", 76, 1), result("zstd", 80.9, 0.35)},
	} {
		var out strings.Builder
		if err := Compress(&out, results); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "repeats within rows"); got != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("printed %s, want %q", out.String(), want)
		}
	}
	if s := repeats([]experiment.CodecResult{result("rank", 40, 1)}); s != "" {
		t.Errorf("one codec alone: %q", s)
	}
}
