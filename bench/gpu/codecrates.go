package gpu

import (
	"math"
	"slices"
	"strings"
)

// rateRows is the least row length, in bytes, that counts for a codec's rate. Shorter rows wait for memory, decoded or copied.
const rateRows = 512

// CodecRates returns codec.Family.GPURate of each codec, by name, from hit-codecs and hit-decode: the bytes that decoding hits writes a
// second ÷ those of a plain gather, the median over rows of 512 bytes and more, to two decimals. Rates are of float32 rows, or of bfloat16
// rows if the codec serves no float32. The map is empty if hit-codecs is not whole.
func (r *Report) CodecRates() map[string]float64 {
	rates := map[string]float64{}
	is := func(s Skipped) bool { return s.Case == "hit-codecs" || s.Case == "hit-decode" }
	if slices.ContainsFunc(r.Incomplete, is) || !slices.ContainsFunc(r.Results, func(x Result) bool { return x.Case == "hit-codecs" }) {
		return rates
	}
	ratios := map[string][]float64{}
	for _, x := range r.Results {
		if (x.Case == "hit-codecs" || x.Case == "hit-decode" && x.Codec != SparseCodec) && x.RowBytes >= rateRows {
			ratios[x.Codec] = append(ratios[x.Codec], x.Ratio)
		}
	}
	for label, of := range ratios {
		name, half := strings.CutSuffix(label, BFloat16Suffix)
		if half && ratios[name] != nil {
			continue
		}
		slices.Sort(of)
		median := of[len(of)/2]
		if len(of)%2 == 0 {
			median = (of[len(of)/2-1] + median) / 2
		}
		rates[name] = math.Round(100*median) / 100
	}
	return rates
}
