package main

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/oteltest"
)

// observed runs the command with variables of the environment added, which must succeed.
func observed(t *testing.T, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("cachebench %s: %v, stderr %q", strings.Join(args, " "), err, e.String())
	}
	return o.String(), e.String()
}

// online are the flags of a small run in which rows are evicted.
var online = append([]string{"run", "--json", "--cold", "--drift", "4", "--refresh-batches", "2"}, "--vertices", "2000", "--batches", "12", "--warmup-batches", "4", "--batch-size", "16", "--codec", "ibp4")

// TestTelemetry_Collector has a real Collector receive what runs say, and holds it against their results.
func TestTelemetry_Collector(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			collector := oteltest.Start(t)
			endpoint := collector.HTTP
			if protocol == "grpc" {
				endpoint = collector.GRPC
			}
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol}, append([]string{"run", "--json"}, small...)...)
			if stderr != "" {
				t.Errorf("stderr %q", stderr)
			}
			checkReceived(t, collector.Stop(t), decode[experiment.Result](t, stdout))
		})
	}
}

// checkReceived holds spans and metrics of a run without changes against its result.
func checkReceived(t *testing.T, r *oteltest.Received, res experiment.Result) {
	t.Helper()
	children := map[string][]string{}
	for _, s := range r.Spans {
		if s.Service != "cachebench" || s.Scope != "github.com/tensorcache/tensorcache/cache" {
			t.Fatalf("span %s is of service %q, scope %q", s.Name, s.Service, s.Scope)
		}
		children[s.ParentSpanID] = append(children[s.ParentSpanID], s.Name)
	}
	sums := map[string]int64{}
	gathers, events := 0, 0
	for _, s := range r.Spans {
		if !strings.HasPrefix(s.Name, "gather ") || s.Attributes.Map()["tensorcache.cache.name"] != "cachebench" {
			continue
		}
		gathers++
		events += len(s.Events)
		names := children[s.SpanID]
		slices.Sort(names)
		if !slices.Equal(names, []string{"hits", "lookup", "misses"}) || s.ParentSpanID != "" || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("span %s has parent %q, children %v", s.Name, s.ParentSpanID, names)
		}
		for _, key := range []string{"rows", "hits", "misses", "misses_cold", "misses_rejected", "misses_evicted", "misses_invalidated", "misses_oversize", "miss_bytes", "host_bytes"} {
			n, err := s.Int("tensorcache.batch." + key)
			if err != nil {
				t.Fatal(err)
			}
			sums[key] += n
		}
		for _, e := range s.Events {
			at := e.Attributes.Map()
			if e.Name != "tensorcache.miss" || at["tensorcache.row"] == "" || at["tensorcache.miss.reason"] == "" || at["tensorcache.policy.frequency"] == "" ||
				at["tensorcache.row.stored_bytes"] == "" || at["tensorcache.miss.sampled"] != "true" {
				t.Fatalf("event %s: %v", e.Name, at)
			}
		}
	}
	q := res.Results
	if gathers != res.Workload.Batches || events == 0 {
		t.Errorf("%d Gathers with %d events, of %d batches", gathers, events, res.Workload.Batches)
	}
	want := map[string]int64{"rows": q.Lookups, "hits": q.Hits, "misses": q.Misses, "miss_bytes": q.HostBytesRaw, "host_bytes": q.HostBytesMoved}
	for reason, n := range res.MissesByReason {
		want["misses_"+reason] = n
		if v, ok := r.Last("tensorcache.misses", "tensorcache.cache.name=cachebench", "tensorcache.miss.reason="+reason); !ok || v != float64(n) {
			t.Errorf("metric of misses, %s: %v (there: %v), want %d", reason, v, ok, n)
		}
	}
	for key, n := range want {
		if sums[key] != n {
			t.Errorf("spans have %d %s, the result %d", sums[key], key, n)
		}
	}
	for name, n := range map[string]int64{
		"tensorcache.lookups": q.Lookups, "tensorcache.gathers": int64(res.Workload.Batches), "tensorcache.rows.cached": res.Cache.RowsCached,
		"tensorcache.gather.rows": int64(res.Workload.Batches), "tensorcache.gather.duration": int64(res.Workload.Batches), "tensorcache.budget.limit": res.Cache.BudgetBytes,
	} {
		if v, ok := r.Last(name, "tensorcache.cache.name=cachebench"); !ok || v != float64(n) {
			t.Errorf("%s = %v (there: %v), want %d", name, v, ok, n)
		}
	}
	for path, n := range map[string]int64{"read": q.HostBytesMoved, "write": 0} {
		if v, ok := r.Last("tensorcache.io", "tensorcache.cache.name=cachebench", "tensorcache.io.path=host_tier", "tensorcache.io.direction="+path); !ok || v != float64(n) {
			t.Errorf("host tier, %s: %v (there: %v), want %d", path, v, ok, n)
		}
	}
	if v, ok := r.Last("tensorcache.lookups", "tensorcache.cache.name=uncompressed"); !ok || v != float64(q.Lookups) {
		t.Errorf("lookups of the uncompressed cache: %v (there: %v), want %d", v, ok, q.Lookups)
	}
}

// TestTelemetry_CollectorAddsUp has several devices follow a workload that drifts, with cycles beside the batches: what the result
// says of the measured batches are the sums of their spans, and the metrics those of all.
func TestTelemetry_CollectorAddsUp(t *testing.T) {
	for _, placement := range []string{"partition", "replicate"} {
		t.Run(placement, func(t *testing.T) {
			collector := oteltest.Start(t)
			args := append(slices.Clone(online), "--devices", "3", "--placement", placement, "--refresh-interval", "1ms")
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.HTTP}, args...)
			if stderr != "" {
				t.Errorf("stderr %q", stderr)
			}
			r, res := collector.Stop(t), decode[experiment.Result](t, stdout)
			var batches []oteltest.Span
			for _, s := range r.Spans {
				if strings.HasPrefix(s.Name, "gather ") && s.Attributes.Map()["tensorcache.cache.name"] == "cachebench" {
					batches = append(batches, s)
				}
			}
			slices.SortFunc(batches, func(a, b oteltest.Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
			if len(batches) <= res.Workload.Batches || res.Workload.Batches == 0 {
				t.Fatalf("%d batches have spans, %d were measured after others", len(batches), res.Workload.Batches)
			}
			sum := func(batches []oteltest.Span, key string) (n int64) {
				for _, s := range batches {
					v, err := s.Int("tensorcache.batch." + key)
					if err != nil {
						t.Fatal(err)
					}
					n += v
				}
				return n
			}
			measured, q := batches[len(batches)-res.Workload.Batches:], res.Results
			want := map[string]int64{"rows": q.Lookups, "hits": q.Hits, "misses": q.Misses, "host_bytes": q.HostBytesMoved}
			reasons, metrics := int64(0), map[string]float64{}
			for reason, n := range res.MissesByReason {
				reasons += n
				want["misses_"+reason] = n
			}
			for key, n := range want {
				if got := sum(measured, key); got != n {
					t.Errorf("spans of the measured batches have %d %s, the result %d", got, key, n)
				}
			}
			if reasons != q.Misses || q.HitsBySlab.Local+q.HitsBySlab.Peer != q.Hits || res.MissesByReason["evicted"] == 0 || placement == "partition" && q.HitsBySlab.Peer == 0 {
				t.Errorf("misses by reason sum to %d: %v, %+v", reasons, res.MissesByReason, q)
			}
			for _, slab := range []string{"own", "peer"} {
				v, _ := r.Last("tensorcache.hits", "tensorcache.cache.name=cachebench", "tensorcache.hit.slab="+slab)
				metrics["hits"] += v
			}
			for reason := range res.MissesByReason {
				v, _ := r.Last("tensorcache.misses", "tensorcache.cache.name=cachebench", "tensorcache.miss.reason="+reason)
				metrics["misses"] += v
				if n := sum(batches, "misses_"+reason); v != float64(n) {
					t.Errorf("metric of misses, %s: %v, spans of all batches %d", reason, v, n)
				}
			}
			metrics["rows"], _ = r.Last("tensorcache.lookups", "tensorcache.cache.name=cachebench")
			for key, v := range metrics {
				if n := sum(batches, key); v != float64(n) {
					t.Errorf("metric of %s: %v, spans of all batches %d", key, v, n)
				}
			}
		})
	}
}

// TestTelemetry_CollectorLinks looks for the spans of the cycles that misses are linked to.
func TestTelemetry_CollectorLinks(t *testing.T) {
	collector := oteltest.Start(t)
	stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.HTTP}, online...)
	if res := decode[experiment.Result](t, stdout); stderr != "" || res.MissesByReason["evicted"] == 0 {
		t.Fatalf("stderr %q, misses %v", stderr, res.MissesByReason)
	}
	r := collector.Stop(t)
	refreshes, links := map[string]bool{}, 0
	for _, s := range r.Spans {
		if s.Name == "refresh" {
			refreshes[s.TraceID+s.SpanID] = true
		}
	}
	for _, s := range r.Spans {
		for _, l := range s.Links {
			links++
			if at := l.Attributes.Map(); !refreshes[l.TraceID+l.SpanID] || at["tensorcache.eviction.by"] != "refresh" || at["tensorcache.eviction.rows"] == "" {
				t.Errorf("link %v to %s of trace %s", at, l.SpanID, l.TraceID)
			}
		}
	}
	if len(refreshes) == 0 || links == 0 {
		t.Errorf("%d cycles, %d links", len(refreshes), links)
	}
}

// TestTelemetry_Undelivered has exporters fail in every way: the run succeeds with the same result, in bounded time, and what was lost
// is said.
func TestTelemetry_Undelivered(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(3 * time.Minute):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	down := httptest.NewServer(nil)
	down.Close()
	args := append([]string{"run", "--json"}, small...)
	plain := decode[experiment.Result](t, succeed(t, args...))
	for name, url := range map[string]string{"slow": slow.URL, "refusing": refusing.URL, "down": down.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}, args...)
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("took %v", took)
			}
			res := decode[experiment.Result](t, stdout)
			if a, b := timeless(&res), timeless(&plain); a.Results != b.Results || a.Results.Misses == 0 {
				t.Errorf("results %+v, want %+v", a.Results, b.Results)
			}
			if !regexp.MustCompile(`(?m)^cachebench: telemetry: (\d+) of (\d+) spans were not delivered: .+$`).MatchString(stderr) ||
				!regexp.MustCompile(`(?m)^cachebench: telemetry: metrics were not delivered: .+$`).MatchString(stderr) {
				t.Errorf("stderr %q", stderr)
			}
		})
	}
}

// TestTelemetry_Environment tries settings of the environment that need no Collector.
func TestTelemetry_Environment(t *testing.T) {
	args := append([]string{"run", "--json"}, small...)
	for name, c := range map[string]struct {
		env    []string
		stderr string
	}{
		"none":      {[]string{"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, `^$`},
		"disabled":  {[]string{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, `^$`},
		"console":   {[]string{"OTEL_TRACES_EXPORTER=console"}, `(?s)"Name":"gather generated".*"Name":"refresh"|"Name":"gather generated"`},
		"unsampled": {[]string{"OTEL_TRACES_EXPORTER=console", "OTEL_TRACES_SAMPLER=always_off"}, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := observed(t, c.env, args...)
			decode[experiment.Result](t, stdout)
			if !regexp.MustCompile(c.stderr).MatchString(stderr) {
				t.Errorf("stderr %.500q does not match %s", stderr, c.stderr)
			}
		})
	}
	cmd := command(t, args...)
	cmd.Env = append(cmd.Env, "OTEL_TRACES_EXPORTER=nonsense")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.HasPrefix(stderr.String(), "cachebench: telemetry: traces: ") {
		t.Errorf("an exporter that there is not: %v, stderr %q", err, stderr.String())
	}
	refuse(t, `--log-level ("loud") must be debug, info, warn or error`, "run", "--log-level", "loud")
	if _, stderr := observed(t, nil, append(args, "--log-level", "info")...); !strings.Contains(stderr, "msg=loaded cache=cachebench") {
		t.Errorf("log %q", stderr)
	}
}

// TestTelemetry_Scrape scrapes a run under way.
func TestTelemetry_Scrape(t *testing.T) {
	cmd := command(t, "run", "--json", "--metrics-addr", ":0", "--vertices", "20000", "--batches", "150", "--warmup-batches", "2", "--codec", "ibp4")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		t.Fatalf("no line: %v", lines.Err())
	}
	url, ok := strings.CutPrefix(lines.Text(), "metrics at ")
	if !ok || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("stderr %q", lines.Text())
	}
	scraped := 0.0
	for deadline := time.Now().Add(4 * time.Minute); scraped == 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			break // the run has ended
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families["tensorcache_lookups_total"].GetMetric() {
			for _, l := range m.Label {
				if l.GetName() == "tensorcache_cache_name" && l.GetValue() == "cachebench" {
					scraped = m.Counter.GetValue()
				}
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		if _, ok := err.(*exec.ExitError); ok {
			t.Fatal(err)
		}
	}
	if res := decode[experiment.Result](t, stdout.String()); scraped == 0 || scraped > float64(res.Results.Lookups) {
		t.Errorf("%v lookups while it ran, %d in all", scraped, res.Results.Lookups)
	}
}

// TestExplain_Rows holds what is said of rows against each other and against bad input.
func TestExplain_Rows(t *testing.T) {
	rows := decode[[]experiment.Explained](t, succeed(t, append([]string{"explain", "--rows", "0-1998, 1999", "--json"}, small...)...))
	res := run(t, small...)
	if len(rows) != 2000 {
		t.Fatalf("%d rows", len(rows))
	}
	cached := int64(0)
	for i, e := range rows {
		if e.Row != int64(i) || e.Policy == nil || e.StoredBytes < 1 || e.SlotBytes < e.StoredBytes || (e.Where == "host") != (e.Reason != "") || (e.Where == "slab") != (e.Offset != nil) {
			t.Fatalf("%+v", e)
		}
		if e.Where == "slab" {
			cached++
		}
	}
	if cached != res.Cache.RowsCached {
		t.Errorf("%d rows are cached, the run says %d", cached, res.Cache.RowsCached)
	}
	if table := succeed(t, append([]string{"explain", "--rows", "7"}, small...)...); !strings.Contains(table, "│   7 │") {
		t.Errorf("table:\n%s", table)
	}
	refuse(t, `--rows (2000) must be 0 to 1999 of table generated`, append([]string{"explain", "--rows", "2000"}, small...)...)
	for _, bad := range []string{"x", "5-3", "", "1,,2", "1-"} {
		if _, _, status := cachebench(t, "explain", "--rows="+bad); status != 1 {
			t.Errorf("--rows=%s: status %d", bad, status)
		}
	}
	refuse(t, `--rows ("0-10000") must be at most 10000 rows in all`, "explain", "--rows", "0-10000")
}
