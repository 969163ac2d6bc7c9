package cluster

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tensorcache/tensorcache/internal/redistest"
)

func TestStats_CountAndAreMetrics(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	data := rowsOf(2000, 51)
	load(t, c.URL(), "x", data, Options{})
	reader := sdkmetric.NewManualReader()
	s, table := openTable(t, c.URL(), Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Hedge: -1})
	allRows(t, table, data)
	stats := s.Stats()
	var pages, bytes int64
	for _, n := range stats.Nodes {
		pages += n.Pages
		bytes += n.Bytes
		if n.Requests == 0 || n.Failures != 0 || n.Usual <= 0 || n.LeftAlone {
			t.Errorf("%+v", n)
		}
	}
	m := s.Manifest()
	if len(stats.Nodes) != 1 || pages != int64(m.Pages) || bytes != m.PageTotal || stats.Requests < 1 || stats.Hedged != 0 || stats.FailedPages != 0 {
		t.Errorf("%d pages of %d bytes in all: %+v", m.Pages, m.PageTotal, stats)
	}
	if got := collected(t, reader); got["tensorcache.cluster.pages"] != pages || got["tensorcache.cluster.io"] != bytes || got["tensorcache.cluster.requests"] < 1 {
		t.Errorf("%v", got)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, reader); len(got) != 0 {
		t.Errorf("after Close: %v", got)
	}
}

// collected returns the sums of all counters.
func collected(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, point := range sum.DataPoints {
					sums[m.Name] += point.Value
				}
			}
		}
	}
	return sums
}
