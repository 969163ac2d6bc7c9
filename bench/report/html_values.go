package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/sim"
)

// decodeOne reads one JSON value. Keys that this report does not know are passed over: newer results have more of them.
func decodeOne(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("must hold one JSON value: %w", err)
	}
	return nil
}

func (c *Cell) validate() error {
	q, u := &c.Result.Results, &c.Result.Uncompressed
	err := errors.Join(
		share("hit_ratio", q.HitRatio), share("uncompressed.hit_ratio", u.HitRatio),
		atLeastZero("lookups", float64(q.Lookups), "misses", float64(q.Misses), "budget_bytes", float64(c.Result.Cache.BudgetBytes),
			"host_bytes_moved", float64(q.HostBytesMoved), "uncompressed.host_bytes_moved", float64(u.HostBytesMoved),
			"batch_latency_ms.p50", q.BatchLatency.P50, "batch_latency_ms.p95", q.BatchLatency.P95, "batch_latency_ms.p99", q.BatchLatency.P99))
	for _, reason := range slices.Sorted(maps.Keys(c.Result.MissesByReason)) {
		err = errors.Join(err, atLeastZero("misses_by_reason."+reason, float64(c.Result.MissesByReason[reason])))
	}
	return err
}

func validPoint(p *sim.Result) error {
	return errors.Join(share("miss_ratio", p.MissRatio), share("byte_miss_ratio", p.ByteMissRatio),
		atLeastZero("cache_objects", float64(p.CacheObjects), "cache_bytes", float64(p.CacheBytes), "requests_per_second", p.RequestsPerSecond))
}

func share(name string, x float64) error {
	if !(x >= 0 && x <= 1) {
		return fmt.Errorf("%s (%g) must be 0 to 1", name, x)
	}
	return nil
}

// atLeastZero checks names and values in turn. What plots cannot hold counts as too large.
func atLeastZero(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if x := pairs[i+1].(float64); !(x >= 0 && x <= math.MaxFloat32) {
			return fmt.Errorf("%s (%g) must not be negative, nor larger than a float32", pairs[i], x)
		}
	}
	return nil
}
