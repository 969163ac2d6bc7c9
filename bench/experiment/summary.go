package experiment

// Summary is the cells of one place in the grid, whatever their seeds: medians.
type Summary struct {
	Point // without its seed
	Seeds int
	// ChosenCodec is the first seed's.
	ChosenCodec                                      string
	CompressionRatio, RowsCached                     float64
	HitRatio, LeastHitRatio, MostHitRatio            float64
	HostBytesMoved, LookupsPerSecond, LatencyP50     float64
	UncompressedHitRatio, UncompressedHostBytesMoved float64
}

// Summarize returns the medians over seeds, in the order of the first cells.
func Summarize(cells []Cell) []Summary {
	var order []Point
	groups := map[Point][]*Cell{}
	for i := range cells {
		p := cells[i].Point()
		p.Seed = 0
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], &cells[i])
	}
	var all []Summary
	for _, p := range order {
		group := groups[p]
		of := func(value func(r *Result) float64) float64 {
			var values []float64
			for _, c := range group {
				values = append(values, value(c.Result))
			}
			return Median(values)
		}
		hit := func(r *Result) float64 { return r.Results.HitRatio }
		s := Summary{
			Point: p, Seeds: len(group), ChosenCodec: group[0].Result.Cache.Codec,
			CompressionRatio:           of(func(r *Result) float64 { return r.Cache.CompressionRatio }),
			RowsCached:                 of(func(r *Result) float64 { return float64(r.Cache.RowsCached) }),
			HitRatio:                   of(hit),
			LeastHitRatio:              hit(group[0].Result),
			HostBytesMoved:             of(func(r *Result) float64 { return float64(r.Results.HostBytesMoved) }),
			LookupsPerSecond:           of(func(r *Result) float64 { return r.Results.LookupsPerSecond }),
			LatencyP50:                 of(func(r *Result) float64 { return r.Results.BatchLatency.P50 }),
			UncompressedHitRatio:       of(func(r *Result) float64 { return r.Uncompressed.HitRatio }),
			UncompressedHostBytesMoved: of(func(r *Result) float64 { return float64(r.Uncompressed.HostBytesMoved) }),
		}
		for _, c := range group {
			s.LeastHitRatio, s.MostHitRatio = min(s.LeastHitRatio, hit(c.Result)), max(s.MostHitRatio, hit(c.Result))
		}
		all = append(all, s)
	}
	return all
}
