package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// sharing has what it costs to let threads of the host gather a part of a batch's misses (docs/gpu.md, Misses shared with the host). The part is such that host and
// GPU end at once.
type sharing struct {
	// hosts is the stored bytes that threads of the host gather a second, by their number.
	hosts curve
	// begin is what a shared batch takes longer than its rows: lists and pieces travel.
	begin float64
}

// When misses are shared (transfer/strategy.go).
const (
	shareTier  = 4 << 30
	shareRow   = 768
	shareBatch = 16384
	// ngramCached is the share of the table that ngram-prefill caches, and mostToBegin above any time that beginning to share takes.
	ngramCached = 1. / 6
	mostToBegin = 1e-3
	// enoughThreads help as much as more do (docs/notebook/shared-misses.md).
	enoughThreads = 8
)

// shares says whether the misses of a batch are shared.
func (m *Model) shares(b Batch) bool {
	return b.HostThreads > 0 && max(b.TierBytes, b.UncachedBytes) >= shareTier && b.RowBytes <= shareRow && b.Lookups >= shareBatch && len(m.hosts) > 0
}

// shared is the time for a batch's misses. REQUIRES: shares(b).
func (m *Model) shared(b Batch) float64 {
	misses := b.Lookups - b.Hits
	if misses <= 0 {
		return 0
	}
	stored, rate := b.MissBytes/misses, m.hosts.at(float64(b.HostThreads), true)
	alone := m.page * pagesOf(misses, b.UncachedBytes)
	_, seconds := halve(misses, func(host float64) (float64, float64) {
		return host * stored / rate, m.page * pagesOf(misses-host, b.UncachedBytes)
	})
	return min(alone, m.begin+seconds) // where sharing does not pay, it is given up
}

// halve returns the value in [0, most] for which the first result of f, which grows, is the second, which falls, and that result.
func halve(most float64, f func(float64) (up, down float64)) (x, y float64) {
	low, high := 0.0, most
	for range 50 {
		x = (low + high) / 2
		if up, down := f(x); up > down {
			high = x
		} else {
			low = x
		}
	}
	y, _ = f(x)
	return x, y
}

// sharingOf takes the speed of the host's threads from gather-misses-large with the shortest rows, and begin from the ngram-prefill that has the fewest misses. Without
// that, begin is 0.
func sharingOf(m *Model, large, prefill []*Result) (s sharing) {
	gather := func(begin float64) (c curve) {
		for _, x := range large {
			if x.RowBytes != large[0].RowBytes || x.HostThreads == 0 {
				continue
			}
			n, rowBytes := float64(x.Batch), float64(x.RowBytes)
			rows := n*rowBytes/(x.Value*1e9) - m.launches - n/m.lookup - begin
			pages := float64(x.TableBytes) * (1 - largeCached) / pageBytes
			own := -pages * math.Log(max(1e-9, 1-rows/m.page/pages)) // rows of so many pages: those that the GPU reads meanwhile
			if host := n - own; rows > 0 && host > 0 {
				c = append(c, point{float64(min(x.HostThreads, enoughThreads)), host * rowBytes * m.storedShare(x.Codec, rowBytes) / rows})
			}
		}
		slices.SortFunc(c, func(a, b point) int { return cmp.Compare(a.rowBytes, b.rowBytes) })
		return c
	}
	s.hosts = gather(0)
	var fewest *Result
	hits := 0.0
	for _, x := range prefill {
		share := 0.0
		if _, err := fmt.Sscanf(x.Detail, "%f hits; misses shared", &share); err == nil && share > hits {
			fewest, hits = x, share
		}
	}
	if fewest == nil || len(s.hosts) == 0 {
		return s
	}
	codec, _, _ := strings.Cut(fewest.Codec, ",")
	n, rowBytes := float64(fewest.Batch), float64(fewest.RowBytes)
	b := Batch{
		RowBytes: fewest.RowBytes, Codec: codec, Lookups: n, Hits: n * hits, MissBytes: n * (1 - hits) * rowBytes * m.storedShare(codec, rowBytes),
		UncachedBytes: float64(fewest.TableBytes) * (1 - ngramCached), TierBytes: float64(fewest.TableBytes),
	}
	most := s.hosts[len(s.hosts)-1].rowBytes
	b.HostThreads = int(most)
	with := func(begin float64) float64 {
		m.sharing = sharing{gather(begin), begin}
		return m.Seconds(b)
	}
	s.begin, _ = halve(mostToBegin, func(begin float64) (float64, float64) { return with(begin), fewest.Value * 1e-6 })
	s.hosts = gather(s.begin)
	return s
}

// storedShare is the stored ÷ raw bytes of rows of a codec as hit-decode and hit-codecs measured them, 1 for others.
func (m *Model) storedShare(codec string, rowBytes float64) float64 {
	if c := m.stored[codec]; c != nil {
		return c.at(rowBytes, false)
	}
	return 1
}
