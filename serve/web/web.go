// Package web answers about a cache over HTTP.
//
//	/            a page for a person, which needs nothing from elsewhere
//	/healthz     200 while the process lives
//	/readyz      200 while the cache serves and can be changed, else 503 with the reason
//	/metrics     for Prometheus
//	/stats       statistics, as JSON
//	/history     hits, misses by reason and latency over the last hour, as JSON
//	/explain     where rows are, or why they are not cached, as JSON: ?table=NAME&row=1&row=7
//	/debug/pprof profiles of the process, if Options.Profiles
//
// With a token, everything but /healthz, /readyz and the page without its data asks for "Authorization: Bearer TOKEN", or the password of a user. Without a token, requests
// whose Host is a name other than localhost are refused: a page of another site, whose name resolves to this machine, cannot read.
//
// A Handler is safe for concurrent use.
package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/metrics"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/internal/throttle"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// Options configure a Handler.
type Options struct {
	// Tables returns the tables, or why they are not served, such as that they are being loaded. It has no default.
	Tables func() (*catalog.Catalog, error)
	// Ready says why /readyz is to answer 503 although tables are served. Default: it does not.
	Ready func() error
	// Latency returns how many requests of clients took at most 1, 2, 4 µs and so on, and longer than the bound before. Default: that is not known.
	Latency func() []int64
	// Stats returns what /stats tells as JSON. Default: the cache's statistics.
	Stats func() (any, error)
	// Metrics answers /metrics. Default: none.
	Metrics http.Handler
	// Token is what clients must send. "": none.
	Token string
	// Login, if not nil, says whether name and password are a user's, who may log in by them (Basic authentication) where a token is asked for.
	Login func(name string, password []byte) bool
	// AnyHost answers requests whatever their Host says, also without a token.
	AnyHost bool
	// Logger receives wrong tokens. Default: none.
	Logger *slog.Logger
	// Profiles answers /debug/pprof. It is for listeners on loopback: profiles show what a program does.
	Profiles bool
}

// Handler answers requests. Close it in the end.
type Handler struct {
	o       Options
	token   atomic.Pointer[[sha256.Size]byte]
	logins  throttle.Logins
	failed  throttle.Log // logins
	metrics metric.Registration
	timed   timed
	mux     *http.ServeMux
	history *history
}

//go:embed page
var page embed.FS

// New returns a handler.
func New(o Options) (*Handler, error) {
	if o.Tables == nil {
		return nil, errors.New("web: Options.Tables must be set")
	}
	if o.Stats == nil {
		o.Stats = func() (any, error) {
			c, err := o.Tables()
			if err != nil {
				return nil, err
			}
			return c.Stats()
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{o: o, mux: http.NewServeMux()}
	if err := h.measure(otel.GetMeterProvider()); err != nil {
		return nil, err
	}
	h.history = newHistory(o.Tables, o.Latency)
	h.SetToken(o.Token)
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	h.mux.HandleFunc("GET /readyz", h.ready)
	h.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for path, file := range map[string]string{"GET /{$}": "page/index.html", "GET /page.js": "page/page.js", "GET /page.css": "page/page.css"} {
		h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, page, file) })
	}
	h.private("GET /stats", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.o.Stats) })
	h.private("GET /history", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, func() (any, error) { return h.history.points(), nil })
	})
	h.private("GET /explain", h.explain)
	if o.Metrics != nil {
		h.private("GET /metrics", o.Metrics.ServeHTTP)
	}
	if o.Profiles {
		h.private("GET /debug/pprof/", long(pprof.Index))
		h.private("GET /debug/pprof/cmdline", pprof.Cmdline)
		h.private("GET /debug/pprof/profile", long(pprof.Profile))
		h.private("GET /debug/pprof/symbol", pprof.Symbol)
		h.private("GET /debug/pprof/trace", long(pprof.Trace))
	}
	return h, nil
}

type counted struct {
	Failed int64 `kind:"counter" metric:"tensorcache.http.logins.failed" unit:"{login}" help:"Requests with a wrong token."`
}

type timed struct {
	Duration metric.Float64Histogram `kind:"histogram" metric:"tensorcache.http.duration" unit:"s" help:"Time of HTTP requests, until the answer was written."`
}

// measure registers the handler's metrics.
func (h *Handler) measure(p metric.MeterProvider) (err error) {
	meter := p.Meter("github.com/tensorcache/tensorcache/serve/web")
	if err = metrics.Histograms(meter, &h.timed, .001, .005, .02, .1, .5, 2, 10, 60); err == nil {
		h.metrics, err = metrics.Register(meter, []any{counted{}}, func(tell metrics.Observe) {
			tell(&counted{h.logins.Failed()})
		})
	}
	if err != nil {
		return fmt.Errorf("web: metrics: %w", err)
	}
	return nil
}

// Close ends what the handler does in the background.
func (h *Handler) Close() {
	h.history.close()
	h.metrics.Unregister()
}

// long lets a request take longer than the server's time to read a request, whose end would end it. The package pprof does the same for the answer.
func long(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody { // else the server may wait for the body
			http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		handle(w, r)
	}
}

// SetToken changes the token.
func (h *Handler) SetToken(token string) {
	if token == "" {
		h.token.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	h.token.Store(&sum)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun, answered := time.Now(), &answered{ResponseWriter: w, status: http.StatusOK}
	h.serve(answered, r)
	_, route, _ := strings.Cut(r.Pattern, " ")
	h.timed.Duration.Record(r.Context(), time.Since(begun).Seconds(), metric.WithAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", answered.status)))
}

// answered keeps the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what it controls.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !h.o.AnyHost && h.token.Load() == nil && !local(r.Host) {
		http.Error(w, fmt.Sprintf("web: host (%q) must be an address or localhost", r.Host), http.StatusForbidden)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// local reports whether a Host is an address or localhost.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// private handles requests that have the token.
func (h *Handler) private(pattern string, handle http.HandlerFunc) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if want := h.token.Load(); want != nil && !h.login(r, want) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "web: this needs a token", http.StatusUnauthorized)
			return
		}
		handle(w, r)
	})
}

// login reports whether a request has the token, or a user's password. A wrong one is delayed.
func (h *Handler) login(r *http.Request, want *[sha256.Size]byte) bool {
	given := r.Header.Get("Authorization")
	if given == "" {
		return false // the page asks so before it has a token
	}
	ok := h.logins.Try(r.Context(), r.RemoteAddr, func() bool {
		if name, password, ok := r.BasicAuth(); ok {
			return h.o.Login != nil && h.o.Login(name, []byte(password))
		}
		kind, token, _ := strings.Cut(given, " ")
		sum := sha256.Sum256([]byte(token))
		return strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
	})
	if !ok {
		h.failed.Record(h.o.Logger, slog.LevelWarn, "web: wrong token", slog.String("from", r.RemoteAddr))
	}
	return ok
}

func (h *Handler) ready(w http.ResponseWriter, _ *http.Request) {
	c, err := h.o.Tables()
	var s *statjson.Stats
	if err == nil {
		s, err = c.Stats()
	}
	if err == nil && h.o.Ready != nil {
		err = h.o.Ready()
	}
	if err == nil {
		for what, text := range s.Errors {
			if what == "change" || strings.HasSuffix(what, ": change") {
				err = errors.New(text)
			}
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// maxExplained is the most rows that one request explains: changes of the cache wait for it.
const maxExplained = 10_000

func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	c, err := h.o.Tables()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	bad := func(format string, args ...any) {
		http.Error(w, fmt.Sprintf("web: "+format, args...), http.StatusBadRequest)
	}
	q := r.URL.Query()
	table, err := c.View().Find(q.Get("table"))
	if err != nil {
		bad("%v", err)
		return
	}
	if n := len(q["row"]); n < 1 || n > maxExplained {
		bad("rows (%d) must be 1 to %d: ?table=NAME&row=1&row=7", n, maxExplained)
		return
	}
	var rows []int64
	for _, text := range q["row"] {
		row, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			bad("row (%q) must be a number", text)
			return
		}
		rows = append(rows, row)
	}
	var all []statjson.Explanation
	err = c.Do(table, func(t *catalog.Table) (err error) {
		all, err = statjson.Explain(t.Cache, t.Index, rows)
		return err
	})
	if errors.Is(err, cache.ErrRows) || errors.Is(err, cache.ErrTable) {
		bad("%v", err)
		return
	}
	answer(w, func() (any, error) { return all, err })
}

// answer writes a value as JSON, or 503 with the error.
func answer(w http.ResponseWriter, value func() (any, error)) {
	v, err := value()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(v) // a client that has gone needs no answer
}
