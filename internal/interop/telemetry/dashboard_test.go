package telemetry_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages"
)

// panel is a panel of a Grafana dashboard; those that are rows may have panels of their own.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr, LegendFormat string }
	Panels      []panel
}

// scraped are the labels of each metric of a scrape.
type scraped map[string]map[string]bool

func newScraped(families map[string]*dto.MetricFamily) scraped {
	all := scraped{}
	for name, f := range families {
		names, has := []string{name}, map[string]bool{}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
			has["le"] = true
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				has[l.GetName()] = true
			}
		}
		for _, name := range names {
			all[name] = has
		}
	}
	return all
}

// check holds a query against what there is: its metrics, the labels that they are chosen and summed by, and that counters are asked
// for their rate. It returns the metrics.
func (all scraped) check(expr string) (metrics []string, err error) {
	// Grafana's variables, as values that they may have.
	expr = strings.NewReplacer("$__rate_interval", "1m", "$cache", ".*").Replace(expr)
	e, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	err = parser.Walk(inspect(func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			has := all[n.Name]
			if has == nil {
				return fmt.Errorf("there is no %s", n.Name)
			}
			metrics = append(metrics, n.Name)
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !has[m.Name] {
					return fmt.Errorf("%s has no label %s", n.Name, m.Name)
				}
			}
			counts := regexp.MustCompile(`_(total|bucket|sum|count)$`).MatchString(n.Name)
			rated := slices.ContainsFunc(path, func(p parser.Node) bool { c, ok := p.(*parser.Call); return ok && c.Func.Name == "rate" })
			if counts != rated {
				return fmt.Errorf("%s is a counter: %v, its rate is asked for: %v", n.Name, counts, rated)
			}
		case *parser.AggregateExpr:
			parser.Inspect(n.Expr, func(node parser.Node, _ []parser.Node) error {
				if v, ok := node.(*parser.VectorSelector); ok {
					for _, l := range n.Grouping {
						if !all[v.Name][l] {
							err = fmt.Errorf("%s is summed by %s, which it has not", v.Name, l)
						}
					}
				}
				return nil
			})
		}
		return err
	}), e, nil)
	return metrics, err
}

// inspect is a parser.Visitor that stops at the first error.
type inspect func(parser.Node, []parser.Node) error

func (f inspect) Visit(node parser.Node, path []parser.Node) (parser.Visitor, error) {
	return f, f(node, path)
}

// zeros is a table of zeros, as a pages.Source.
type zeros struct{ rows, left int }

func (z *zeros) Rows() int     { return z.rows }
func (z *zeros) RowBytes() int { return 128 }
func (z *zeros) Close() error  { return nil }
func (z *zeros) Read(dst []byte) (int, error) {
	n := min(len(dst)/128, z.left)
	z.left -= n
	clear(dst[:n*128])
	return n, nil
}

// below reads rows of a table of pages, for the metrics that only such tables have.
func below(t *testing.T) {
	t.Helper()
	const rows = 4000
	place := pages.NewMemory()
	o := pages.PackOptions{Name: "below", DType: dtype.Float32, Codec: "none", Stage: "none"}
	if _, err := pages.Pack(t.Context(), func() (pages.Source, error) { return &zeros{rows, rows}, nil }, place.Writer(), o); err != nil {
		t.Fatal(err)
	}
	store, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := pages.OpenStores(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.FromPages(packed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: 50_000, Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Memory: 100_000}, Telemetry: cache.TelemetryOptions{Name: "below"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	if err := c.Gather(t.Context(), cache.Request{Rows: all, Out: make([]byte, rows*128)}); err != nil {
		t.Fatal(err)
	}
}

// TestDashboard_Queries parses every query of the dashboard as Prometheus does, and holds it against a scrape.
func TestDashboard_Queries(t *testing.T) {
	b, err := os.ReadFile("../../../docs/dashboards/tensorcache.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels     []panel
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	otel.SetTracerProvider(sdktrace.NewTracerProvider()) // samples all: stages have times
	t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
	c, url := serve(t)
	work(t, c)
	below(t)
	scrape(t, url)
	time.Sleep(150 * time.Millisecond) // the use of the host link is that between two scrapes
	all := newScraped(scrape(t, url))
	queries, asked := 0, map[string]bool{}
	var check func(p panel)
	check = func(p panel) {
		for _, inner := range p.Panels {
			check(inner)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			queries++
			metrics, err := all.check(q.Expr)
			if err != nil || len(metrics) == 0 {
				t.Errorf("panel %q: %s: metrics %v, %v", p.Title, q.Expr, metrics, err)
				continue
			}
			for _, m := range metrics {
				asked[m] = true
			}
			for _, l := range regexp.MustCompile(`{{\s*(\w+)\s*}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !all[metrics[0]][l[1]] {
					t.Errorf("panel %q: its legend says %s, which %s has not", p.Title, l[1], metrics[0])
				}
			}
		}
	}
	for _, p := range board.Panels {
		check(p)
	}
	for _, must := range []string{"tensorcache_misses_total", "tensorcache_estimated_hit_ratio", "tensorcache_host_link_utilization_ratio", "tensorcache_gather_duration_seconds_bucket", "tensorcache_cold_latency_seconds"} {
		if !asked[must] {
			t.Errorf("nothing asks for %s", must)
		}
	}
	if queries < 15 {
		t.Errorf("%d queries", queries)
	}
	for _, v := range board.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query); v.Type == "query" && (m == nil || !all[m[1]][m[2]]) {
			t.Errorf("variable %s: %s", v.Name, v.Query)
		}
	}
	for bad, want := range map[string]string{
		"sum(": "unclosed left parenthesis", "tensorcache_nonsense": "there is no tensorcache_nonsense",
		`rate(tensorcache_misses_total{le="1"}[1m])`: "has no label le", "sum by (le) (rate(tensorcache_misses_total[1m]))": "is summed by le",
		"tensorcache_misses_total": "its rate is asked for: false",
	} {
		if _, err := all.check(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}
