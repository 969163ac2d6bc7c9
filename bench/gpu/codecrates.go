package gpu

import (
	"math"
	"slices"
	"strings"
)

// rateRows is the row length from which on codecs are rated: below, both they and copying wait for memory.
const rateRows = 512

// CodecRates returns each codec's codec.Family.GPURate, by name, as hit-codecs and hit-decode measured them: the median over the
// row lengths from 512 bytes on of what decoding hits writes a second ÷ what a plain gather does, of float32 rows, or of bfloat16
// ones where the codec serves no others; two decimals. It is empty where hit-codecs is not whole.
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
