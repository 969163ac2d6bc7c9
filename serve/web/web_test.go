package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/browsertest"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// hostile is a name that a page must show, not obey.
const hostile = `<img src=x onerror="harmed=1">users`

// open returns a cache of two tables whose estimate has seen accesses.
func open(t testing.TB) *cache.Cache {
	t.Helper()
	var tables []cache.Table
	for _, name := range []string{hostile, "7"} {
		table, err := cache.FromBytes(name, dtype.Int32, make([]byte, 1000*64), 64)
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	c, err := cache.New(cache.Options{Tables: tables, Budget: 16 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		Refresh: cache.RefreshOptions{Accesses: 1, Keys: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// tablesOf returns Options.Tables of a cache.
func tablesOf(t testing.TB, c *cache.Cache) func() (*catalog.Catalog, error) {
	t.Helper()
	tables, err := catalog.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*catalog.Catalog, error) { return tables, nil }
}

// serve answers about a cache until the test ends.
func serve(t testing.TB, o Options) (*Handler, string) {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return h, s.URL
}

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func use(t testing.TB, c *cache.Cache, rows ...int64) {
	t.Helper()
	if err := c.Gather(context.Background(), cache.Request{Rows: rows, Out: make([]byte, len(rows)*64)}); err != nil {
		t.Fatal(err)
	}
}

func TestHandler_Explain(t *testing.T) {
	t.Parallel()
	c := open(t)
	_, url := serve(t, Options{Tables: tablesOf(t, c)})
	for query, want := range map[string]string{
		"":                      `web: table ("") must be one of 2: ` + hostile + `, 7`,
		"?table=8":              `web: table ("8") must be one of 2: ` + hostile + `, 7`,
		"?table=0":              `web: rows (0) must be 1 to 10000: ?table=NAME&row=1&row=7`,
		"?table=0&row=x":        `web: row ("x") must be a number`,
		"?table=0&row=1&row=-1": `web: cache: row numbers out of range: `,
		"?table=0&row=1000":     `web: cache: row numbers out of range: `,
	} {
		if status, body := get(t, url+"/explain"+query); status != http.StatusBadRequest || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	for _, table := range []string{"7", "1"} { // a name goes before a number
		status, body := get(t, url+"/explain?row=0&row=999&table="+table)
		var all []struct {
			Row    int64
			Cached bool
		}
		if err := json.Unmarshal([]byte(body), &all); err != nil || status != http.StatusOK || len(all) != 2 || all[1].Row != 999 {
			t.Errorf("table %s: %d %s", table, status, body)
		}
	}
}

// TestHandler_Host: without a token, a page of another site that has its name resolve to this machine reads nothing.
func TestHandler_Host(t *testing.T) {
	t.Parallel()
	c := open(t)
	h, url := serve(t, Options{Tables: tablesOf(t, c)})
	ask := func(host string) int {
		t.Helper()
		r, err := http.NewRequest("GET", url+"/stats", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	for host, want := range map[string]int{"localhost:80": 200, "127.0.0.1": 200, "[::1]:8080": 200, "10.0.0.7:80": 200, "evil.example": 403, "localhost.evil.example:80": 403} {
		if got := ask(host); got != want {
			t.Errorf("host %s: %d", host, got)
		}
	}
	h.SetToken("x")
	if got := ask("tensorcached.example"); got != http.StatusUnauthorized {
		t.Errorf("a name, with a token: %d", got)
	}
}

// TestHandler_WrongToken: wrong tokens are delayed, counted and logged, the latter once in a while; a request without one is neither.
func TestHandler_WrongToken(t *testing.T) {
	t.Parallel()
	c := open(t)
	var log bytes.Buffer
	h, url := serve(t, Options{Tables: tablesOf(t, c), Token: "right", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ask := func(authorization string) int {
		t.Helper()
		r, err := http.NewRequest("GET", url+"/stats", nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	begun := time.Now()
	for range 10 {
		if got := ask("Bearer wrong"); got != http.StatusUnauthorized {
			t.Errorf("a wrong token: %d", got)
		}
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("10 guesses took %v", took)
	}
	if ask("") != http.StatusUnauthorized || ask("Bearer right") != http.StatusOK {
		t.Error("no token, or the right one")
	}
	reader := sdkmetric.NewManualReader()
	if err := h.measure(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil || len(all.ScopeMetrics) != 1 {
		t.Fatalf("%d scopes, %v", len(all.ScopeMetrics), err)
	}
	m := all.ScopeMetrics[0].Metrics[0]
	if n := m.Data.(metricdata.Sum[int64]).DataPoints[0].Value; n != 10 || m.Name != "tensorcache.http.logins.failed" {
		t.Errorf("%s is %d", m.Name, n)
	}
	if got := log.String(); strings.Count(got, `level=WARN msg="web: wrong token" from=127.0.0.1:`) != 1 {
		t.Errorf("the log has %s", got)
	}
}

// TestHandler_LongTrace: a trace may take longer than the time that a server has for requests and answers.
func TestHandler_LongTrace(t *testing.T) {
	c := open(t)
	h, err := New(Options{Tables: tablesOf(t, c), Profiles: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := httptest.NewUnstartedServer(h)
	s.Config.ReadTimeout, s.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	s.Start()
	defer s.Close()
	begun := time.Now()
	status, body := get(t, s.URL+"/debug/pprof/trace?seconds=0.6")
	if took := time.Since(begun); status != http.StatusOK || !strings.HasPrefix(body, "go 1.") || took < 600*time.Millisecond {
		t.Errorf("after %v: %d, %.20q", took, status, body)
	}
}

func TestHandler_NotReady(t *testing.T) {
	t.Parallel()
	c := open(t)
	var why error = errors.New("loading")
	_, url := serve(t, Options{Tables: func() (*catalog.Catalog, error) {
		if why != nil {
			return nil, why
		}
		return tablesOf(t, c)()
	}})
	for _, path := range []string{"/readyz", "/stats", "/explain?table=0&row=0"} {
		if status, body := get(t, url+path); status != http.StatusServiceUnavailable || body != "loading\n" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, body := get(t, url+"/history"); status != http.StatusOK || body != "[]\n" {
		t.Errorf("history: %d %q", status, body)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/nowhere"} {
		if status, _ := get(t, url+path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	if r, err := http.Post(url+"/stats", "", nil); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}
}

// brokenContext panics when it is asked for the second time whether it has ended.
type brokenContext struct {
	context.Context
	asked int
}

func (c *brokenContext) Err() error {
	if c.asked++; c.asked > 1 {
		panic("broken context")
	}
	return nil
}

// TestHandler_NotReadyAfterPanic: a change that has panicked is not reported as a cache that is ready, and leaves no lock behind. Reads go on.
func TestHandler_NotReadyAfterPanic(t *testing.T) {
	t.Parallel()
	data := make([]byte, 1000*64)
	for i := range data {
		data[i] = byte(i / 64 * (i%64 + 1))
	}
	table, err := cache.FromBytes("x", dtype.Int32, data, 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 64 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, url := serve(t, Options{Tables: tablesOf(t, c)})
	if status, body := get(t, url+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %q", status, body)
	}
	func() {
		defer func() {
			if p := recover(); p != "broken context" {
				t.Errorf("recovered: %v", p)
			}
		}()
		c.SetBudget(&brokenContext{Context: context.Background()}, 32<<10)
	}()
	const why = "cache: changing what is cached: panic: broken context"
	if status, body := get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != why+"\n" {
		t.Errorf("after a panic: %d %q", status, body)
	}
	for name, err := range map[string]error{
		"Update": c.Update(context.Background(), 0, []int64{1}, data[:64]), "SetBudget": c.SetBudget(context.Background(), 64<<10), "Refresh": c.Refresh(context.Background()),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := make([]byte, 2*64)
	if err := c.Gather(context.Background(), cache.Request{Rows: []int64{7, 999}, Out: out}); err != nil || string(out) != string(data[7*64:8*64])+string(data[999*64:]) {
		t.Errorf("Gather: %v, or other rows", err)
	}
}

// TestHistory_Points: each has what happened in its stretch, and the oldest are dropped.
func TestHistory_Points(t *testing.T) {
	t.Parallel()
	c := open(t)
	h := &history{end: make(chan struct{})}
	of := tablesOf(t, c)
	h.ended.Go(func() { h.keep(of, 20*time.Millisecond) })
	until := func(what string, true func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !true(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	until("a point", func() bool { return len(h.points()) > 0 })
	for range 10 {
		use(t, c, 1, 2, 999)
		time.Sleep(10 * time.Millisecond)
	}
	until("all lookups in points", func() bool {
		n := int64(0)
		for _, p := range h.points() {
			n += p.Lookups
		}
		return n >= 30
	})
	h.close()
	lookups, hits, misses := int64(0), int64(0), int64(0)
	for i, p := range h.points() {
		lookups, hits = lookups+p.Lookups, hits+p.Hits
		for _, n := range p.MissesByReason {
			misses += n
		}
		if p.Seconds <= 0 || i > 0 && p.Time < h.points()[i-1].Time {
			t.Errorf("point %d: %+v", i, p)
		}
	}
	if s, _ := c.Stats(); lookups != 30 || hits+misses != lookups || s.Tables[0].Lookups != 30 {
		t.Errorf("points have %d lookups, %d hits and %d misses of 30 lookups", lookups, hits, misses)
	}
	for range 2 * historyKeep {
		h.add(Point{})
	}
	if n := len(h.points()); n != historyKeep {
		t.Errorf("%d points are kept", n)
	}
}

// TestPage_InBrowser: the page shows what /stats says, nothing that a name says is done, and with a token it asks for it.
func TestPage_InBrowser(t *testing.T) {
	t.Parallel()
	c := open(t)
	h, url := serve(t, Options{Tables: tablesOf(t, c)})
	for range 20 {
		use(t, c, 1, 2, 3, 4, 5, 600, 700, 800)
	}
	if _, err := c.Stats(); err != nil { // takes in the samples
		t.Fatal(err)
	}
	for i := range 30 { // a history of half an hour
		p := Point{Time: 1.8e9 + 60*float64(i), Seconds: 60, Lookups: 1000, Hits: int64(300 + 20*i), Requests: 10, Half: 64e-6, Most: float64(i+1) * 1e-4, MissesByReason: map[string]int64{"rejected": 5}}
		if i >= 10 && i < 15 { // nothing was asked
			p = Point{Time: p.Time, Seconds: 60}
		}
		h.history.add(p)
	}
	b := browsertest.New(t)
	b.Open(url)
	shown := func(expression string) bool {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
			if browsertest.Eval[bool](b, expression) {
				return true
			}
		}
		return false
	}
	if !shown(`!document.getElementById("main").hidden`) {
		t.Fatalf("the page shows nothing: %s", browsertest.Eval[string](b, `document.body.innerText`))
	}
	text := browsertest.Eval[string](b, `document.body.innerText`)
	for _, want := range []string{"hit rate since the start", "Twice the budget would bring", "other rows were worth more", hostile, "2,000 rows cached", "2 × 16.0 KiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if browsertest.Eval[bool](b, `"harmed" in window`) || browsertest.Eval[int](b, `document.querySelectorAll("img, iframe").length`) != 0 {
		t.Error("a name of a table became a part of the page")
	}
	for id, want := range map[string]string{"hits": "10 15", "rates": "10 15", "times": "10 15 10 15"} {
		lengths := browsertest.Eval[string](b, `[...document.querySelectorAll("#`+id+` polyline")].map((p) => p.points.length).join(" ")`)
		if lengths != want && lengths != want[:len(want)-1]+string(want[len(want)-1]+1) { // a point of the last seconds may have come
			t.Errorf("lines of %s have %s points, want %s", id, lengths, want)
		}
	}
	if wide := browsertest.Eval[bool](b, `document.documentElement.scrollWidth > window.innerWidth`); wide {
		t.Error("the page is wider than the window")
	}
	b.Screenshot("service.png")
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 3200, "deviceScaleFactor": 2, "mobile": true}, nil)
	browsertest.Eval[any](b, `update()`)
	if wide := browsertest.Eval[int](b, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d pixels wide on a telephone of 390", wide)
	}
	b.Screenshot("service-phone.png")
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1200, "height": 2600, "deviceScaleFactor": 1, "mobile": false}, nil)
	browsertest.Eval[any](b, `update()`)
	b.Screenshot("service-whole.png")
	b.Call("Emulation.clearDeviceMetricsOverride", map[string]any{}, nil)
	if all := b.EventsOf("Log.entryAdded"); len(all) > 0 {
		t.Errorf("the browser complains: %s", all)
	}
	for _, r := range b.EventsOf("Network.requestWillBeSent") {
		var request struct{ Request struct{ URL string } }
		if err := json.Unmarshal([]byte(r), &request); err != nil || !strings.HasPrefix(request.Request.URL, url) && request.Request.URL != "about:blank" {
			t.Errorf("the page asks for %s", request.Request.URL)
		}
	}
	h.SetToken("secret")
	b.Open(url)
	if !shown(`!document.getElementById("login").hidden`) {
		t.Fatal("the page asks for no token")
	}
	if !browsertest.Eval[bool](b, `document.getElementById("main").hidden`) {
		t.Error("the page shows numbers without the token")
	}
	browsertest.Eval[any](b, `document.getElementById("token").value = "secret"; document.getElementById("login").requestSubmit()`)
	if !shown(`!document.getElementById("main").hidden && document.getElementById("login").hidden`) {
		t.Error("the page shows nothing with the token")
	}
}
