package telemetry_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/version"
)

// cachebench is the command that is tested.
var cachebench string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cachebench")
	if err != nil {
		log.Fatal(err)
	}
	cachebench = filepath.Join(dir, "cachebench")
	build := exec.Command("go", "build", "-tags", version.Tags(), "-o", cachebench, "./cmd/cachebench")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("building cachebench: %v\n%s", err, out)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// command returns cachebench, not started. It is killed after some minutes.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, cachebench, args...)
}

// decode reads the one result that the command printed.
func decode(t *testing.T, s string) (r experiment.Result) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	return r
}

// small are the flags of a generated run that takes no time.
var small = []string{"--vertices", "2000", "--batches", "6", "--train-batches", "4", "--batch-size", "16", "--codec", "ibp4"}

// observed runs the command with variables of the environment added, which must succeed.
func observed(t *testing.T, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.Env = append(append(os.Environ(), "TENSORCACHE_TRACE_RATE=0"), env...) // results are held against the spans of all batches
	if err := cmd.Run(); err != nil {
		t.Fatalf("cachebench %s: %v, stderr %q", strings.Join(args, " "), err, e.String())
	}
	return o.String(), e.String()
}

// online are the flags of a small run in which rows are evicted.
var online = append([]string{"run", "--json", "--cold", "--drift", "4", "--refresh-batches", "2"}, "--vertices", "2000", "--batches", "12", "--train-batches", "4", "--batch-size", "16", "--codec", "ibp4")

// TestTelemetry_Received has a receiver of OTLP receive what runs say, and holds it against their results.
func TestTelemetry_Received(t *testing.T) { testReceivers(t, startServer) }

func testReceivers(t *testing.T, start func(*testing.T) receiver) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			r := start(t)
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.Endpoint(protocol), "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol}, append([]string{"run", "--json"}, small...)...)
			if stderr != "" {
				t.Errorf("stderr %q", stderr)
			}
			checkReceived(t, r.Stop(t), decode(t, stdout))
		})
	}
}

// checkReceived holds spans and metrics of a run without changes against its result.
func checkReceived(t *testing.T, r *Received, res experiment.Result) {
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

// TestTelemetry_AddsUp has several devices follow a workload that drifts, with cycles beside the batches: what the result
// says of the measured batches are the sums of their spans, and the metrics those of all.
func TestTelemetry_AddsUp(t *testing.T) {
	for _, placement := range []string{"partition", "replicate"} {
		t.Run(placement, func(t *testing.T) {
			receiver := startServer(t)
			args := append(slices.Clone(online), "--devices", "3", "--placement", placement, "--refresh-interval", "1ms")
			stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.Endpoint("http/protobuf")}, args...)
			if stderr != "" {
				t.Errorf("stderr %q", stderr)
			}
			r, res := receiver.Stop(t), decode(t, stdout)
			var batches []Span
			for _, s := range r.Spans {
				if strings.HasPrefix(s.Name, "gather ") && s.Attributes.Map()["tensorcache.cache.name"] == "cachebench" {
					batches = append(batches, s)
				}
			}
			slices.SortFunc(batches, func(a, b Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
			if len(batches) <= res.Workload.Batches || res.Workload.Batches == 0 {
				t.Fatalf("%d batches have spans, %d were measured after others", len(batches), res.Workload.Batches)
			}
			sum := func(batches []Span, key string) (n int64) {
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

// TestTelemetry_Links looks for the spans of the cycles that misses are linked to.
func TestTelemetry_Links(t *testing.T) {
	receiver := startServer(t)
	stdout, stderr := observed(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.Endpoint("http/protobuf")}, online...)
	if res := decode(t, stdout); stderr != "" || res.MissesByReason["evicted"] == 0 {
		t.Fatalf("stderr %q, misses %v", stderr, res.MissesByReason)
	}
	r := receiver.Stop(t)
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

// TestTelemetry_Scrape scrapes a run under way.
func TestTelemetry_Scrape(t *testing.T) {
	cmd := command(t, "run", "--json", "--metrics-addr", ":0", "--vertices", "20000", "--batches", "150", "--train-batches", "2", "--codec", "ibp4")
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
	if res := decode(t, stdout.String()); scraped == 0 || scraped > float64(res.Results.Lookups) {
		t.Errorf("%v lookups while it ran, %d in all", scraped, res.Results.Lookups)
	}
}
