package telemetry_test

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var received = flag.String("received", "", "file that a Collector's file exporter has written of cachebench, for TestDraw")

// TestDraw draws the pictures of docs/tracing.md: the trace with the most kinds of misses as a waterfall, and metrics over time.
//
//	go -C internal/interop test ./telemetry -run '^TestDraw$' -received /tmp/received.jsonl
func TestDraw(t *testing.T) {
	if *received == "" {
		t.Skip("-received names no file")
	}
	r := readFile(t, *received)
	for name, draw := range map[string]func(*Received) string{"trace.svg": trace, "metrics.svg": metrics} {
		if err := os.WriteFile(filepath.Join("../../../docs/dashboards", name), []byte(draw(r)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var colours = []string{"#3b6ea8", "#c8553d", "#588b4a", "#8a63a8", "#c9962b"}

// picture is an SVG under way.
type picture struct{ strings.Builder }

func (p *picture) text(x, y float64, size int, weight, s string) {
	fmt.Fprintf(p, `<text x="%.0f" y="%.0f" font-size="%d" font-weight="%s">%s</text>`+"\n", x, y, size, weight, html.EscapeString(s))
}

func (p *picture) end(width, height int) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" fill="#222">
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, width, height, width, height, p.String())
}

// trace draws the Gather whose events have the most reasons, the later the better.
func trace(r *Received) string {
	var best *Span
	most := 0
	for i := range r.Spans {
		s := &r.Spans[i]
		reasons := map[string]bool{}
		for _, e := range s.Events {
			a := e.Attributes.Map()
			reasons[a["tensorcache.miss.reason"]] = true
			reasons["explained"] = reasons["explained"] || a["tensorcache.policy.score"] != "" // the policy was not busy
		}
		if strings.HasPrefix(s.Name, "gather ") && s.Attributes.Map()["tensorcache.cache.name"] == "cachebench" && len(reasons)+len(s.Links) >= most {
			best, most = s, len(reasons)+len(s.Links)
		}
	}
	if best == nil {
		log.Fatal("no Gather among the spans")
	}
	spans := []Span{*best}
	for _, s := range r.Spans {
		if s.ParentSpanID == best.SpanID {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans[1:], func(a, b Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	const left, width = 150., 780.
	p, y := &picture{}, 58.
	p.text(16, 26, 15, "bold", "trace "+best.TraceID)
	p.text(16, 44, 11, "normal", "cachebench on the host backend: stages one after the other")
	took := float64(best.EndTimeUnixNano - best.StartTimeUnixNano)
	for i, s := range spans {
		from, to := float64(s.StartTimeUnixNano-best.StartTimeUnixNano)/took, float64(s.EndTimeUnixNano-best.StartTimeUnixNano)/took
		p.text(16+12*float64(min(i, 1)), y+13, 12, "normal", s.Name)
		fmt.Fprintf(p, `<rect x="%.1f" y="%.0f" width="%.1f" height="17" rx="2" fill="%s"/>`+"\n", left+width*from, y, max(1, width*(to-from)), colours[i%len(colours)])
		label := fmt.Sprintf("%.2f ms", float64(s.EndTimeUnixNano-s.StartTimeUnixNano)/1e6)
		x, colour := left+width*from+4, "#fff"
		if width*(to-from) < 60 { // beside the bar
			if x, colour = left+width*to+4, "#222"; to > 0.9 {
				x = left + width*from - 56
			}
		}
		fmt.Fprintf(p, `<text x="%.1f" y="%.0f" font-size="11" fill="%s">%s</text>`+"\n", x, y+13, colour, label)
		y += 22
	}
	at := best.Attributes.Map()
	y += 22
	for _, keys := range [][]string{
		{"tensorcache.batch.rows", "tensorcache.batch.hits", "tensorcache.batch.misses", "tensorcache.batch.misses_cold", "tensorcache.batch.misses_rejected", "tensorcache.batch.misses_evicted"},
		{"tensorcache.batch.miss_bytes", "tensorcache.batch.host_bytes", "tensorcache.strategy.planned", "tensorcache.strategy.run", "tensorcache.strategy.fetch"},
	} {
		var parts []string
		for _, k := range keys {
			parts = append(parts, strings.TrimPrefix(k, "tensorcache.")+" = "+at[k])
		}
		p.text(16, y, 11, "normal", strings.Join(parts, "   "))
		y += 17
	}
	y += 10
	p.text(16, y, 12, "bold", fmt.Sprintf("events: %d sampled misses, some of them", len(best.Events)))
	shown := map[string]int{}
	for _, e := range best.Events {
		a := e.Attributes.Map()
		if reason := a["tensorcache.miss.reason"]; shown[reason] < 4 {
			shown[reason]++
			y += 16
			s := fmt.Sprintf("row %s   %s   stored %s B   frequency %.4s   score %.5s   victim's %.5s", a["tensorcache.row"], reason,
				a["tensorcache.row.stored_bytes"], a["tensorcache.policy.frequency"], a["tensorcache.policy.score"], a["tensorcache.policy.victim_score"])
			if age := a["tensorcache.eviction.age"]; age != "" {
				s += fmt.Sprintf("   cached for %s s, evicted %.4s s ago by %s", age, a["tensorcache.eviction.elapsed"], a["tensorcache.eviction.by"])
			}
			p.text(28, y, 11, "normal", s)
		}
	}
	y += 24
	p.text(16, y, 12, "bold", fmt.Sprintf("links: %d cycles that evicted them", len(best.Links)))
	for _, l := range best.Links {
		y += 16
		a := l.Attributes.Map()
		p.text(28, y, 11, "normal", fmt.Sprintf("%s, trace %s: rows %.60s", a["tensorcache.eviction.by"], l.TraceID, a["tensorcache.eviction.rows"]))
	}
	return p.end(960, int(y)+20)
}

// series is a metric over time: seconds since the first point, and values.
type series struct {
	name string
	x, y []float64
}

// over returns the series of an instrument by the values of an attribute.
func over(r *Received, name, by string) (all []*series) {
	first := int64(0)
	for _, p := range r.Points {
		if p.Attributes["tensorcache.cache.name"] != "cachebench" {
			continue
		}
		if first == 0 {
			first = p.Nanos
		}
		if p.Name != name {
			continue
		}
		key := p.Attributes[by]
		if direction := p.Attributes["tensorcache.io.direction"]; direction != "" {
			key += " " + direction
		}
		i := slices.IndexFunc(all, func(s *series) bool { return s.name == key })
		if i < 0 {
			i = len(all)
			all = append(all, &series{name: key})
		}
		all[i].x, all[i].y = append(all[i].x, float64(p.Nanos-first)/1e9), append(all[i].y, p.Value)
	}
	return all
}

// rates turns counters into what they grew by each second.
func rates(all []*series) []*series {
	for _, s := range all {
		for i := len(s.y) - 1; i > 0; i-- {
			s.y[i] = (s.y[i] - s.y[i-1]) / max(1e-3, s.x[i]-s.x[i-1])
		}
		if len(s.y) > 0 {
			s.x, s.y = s.x[1:], s.y[1:]
		}
	}
	return all
}

func metrics(r *Received) string {
	hits, lookups := rates(over(r, "tensorcache.hits", "tensorcache.hit.slab")), rates(over(r, "tensorcache.lookups", "tensorcache.table.name"))
	ratio := []*series{}
	for _, s := range hits {
		if s.name != "own" {
			continue
		}
		for i := range s.y {
			if i < len(lookups[0].y) {
				s.y[i] /= max(1, lookups[0].y[i])
			}
		}
		s.name = "hit ratio"
		ratio = append(ratio, s)
	}
	p := &picture{}
	p.text(16, 26, 15, "bold", "cachebench run --cold --drift, on the host backend: metrics as a Collector received them")
	for i, panel := range []struct {
		title, unit string
		all         []*series
	}{
		{"hit ratio", "", ratio},
		{"misses by reason", "rows/s", rates(over(r, "tensorcache.misses", "tensorcache.miss.reason"))},
		{"refresh churn", "rows/s", rates(over(r, "tensorcache.refresh.rows", "tensorcache.refresh.action"))},
		{"bytes, by path", "B/s", rates(over(r, "tensorcache.io", "tensorcache.io.path"))},
	} {
		p.panel(float64(16+472*(i%2)), float64(44+230*(i/2)), panel.title, panel.unit, panel.all)
	}
	return p.end(960, 510)
}

// panel draws series that are not all zero.
func (p *picture) panel(x, y float64, title, unit string, all []*series) {
	const width, height = 440., 150.
	p.text(x, y+14, 12, "bold", title)
	all = slices.DeleteFunc(all, func(s *series) bool { return len(s.y) == 0 || slices.Max(s.y) <= 0 })
	top, end := 1e-9, 1e-9
	for _, s := range all {
		top, end = max(top, slices.Max(s.y)), max(end, slices.Max(s.x))
	}
	fmt.Fprintf(p, `<path d="M%.0f %.0fv%.0fh%.0f" stroke="#999" fill="none"/>`+"\n", x, y+22, height, width)
	p.text(x+4, y+32, 10, "normal", strconv.FormatFloat(top, 'g', 3, 64)+" "+unit)
	p.text(x+width-30, y+22+height+12, 10, "normal", strconv.FormatFloat(end, 'f', 0, 64)+" s")
	for i, s := range all {
		fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="1.6" points="`, colours[i%len(colours)])
		for j := range s.y {
			fmt.Fprintf(p, "%.1f,%.1f ", x+width*s.x[j]/end, y+22+height*(1-max(0, s.y[j])/top))
		}
		fmt.Fprint(p, `"/>`+"\n")
		fmt.Fprintf(p, `<text x="%.0f" y="%.0f" font-size="11" fill="%s">%s</text>`+"\n", x+8+float64(i)*110, y+22+height+26, colours[i%len(colours)], html.EscapeString(s.name))
	}
}

// readFile reads what a Collector has written.
func readFile(t testing.TB, name string) *Received {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
