package daemon

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	declared "github.com/tensorcache/tensorcache/internal/metrics"
	"github.com/tensorcache/tensorcache/internal/version"
)

// What the service says of itself. Listeners and caches declare their own metrics.
type (
	build struct {
		One int64 `kind:"gauge" metric:"tensorcache.build.info" unit:"{build}" help:"Always 1: attributes say what the program was built from, and whether with CUDA."`
	}
	service struct {
		Uptime   time.Duration `kind:"gauge" metric:"tensorcache.service.uptime" unit:"s" help:"Time since the start."`
		Ready    bool          `kind:"gauge" metric:"tensorcache.service.ready" unit:"{state}" help:"Whether /readyz answers 200."`
		Draining bool          `kind:"gauge" metric:"tensorcache.service.draining" unit:"{state}" help:"Whether the program is about to end, or lets no further process attach."`
		Tables   int64         `kind:"gauge" metric:"tensorcache.service.tables" unit:"{table}" help:"Tables that are served."`
		Attached int64         `kind:"gauge" metric:"tensorcache.attached.processes" unit:"{process}" help:"Processes that are attached."`
		Holding  int64         `kind:"gauge" metric:"tensorcache.attached.holding" unit:"{process}" help:"Processes that hold changes back for longer than --stopped-after: changes fail."`
		Held     float64       `kind:"gauge" metric:"tensorcache.attached.held" unit:"s" help:"Longest time for which one of them has."`
		HTTP     int64         `kind:"gauge" metric:"tensorcache.http.connections" unit:"{connection}" help:"HTTP connections now."`
		Refused  int64         `kind:"counter" metric:"tensorcache.http.connections.cut" unit:"{connection}" help:"HTTP connections that were closed as there were too many."`
		Pressure float64       `kind:"gauge" metric:"tensorcache.service.memory_pressure" unit:"1" help:"Share of the last 10 s in which all tasks of the control group waited for memory."`
	}
	changes struct {
		Made   int64 `kind:"counter" metric:"tensorcache.table.changes" with:"tensorcache.outcome=made" unit:"{change}" help:"Tables added, replaced and dropped: made, or failed."`
		Failed int64 `kind:"counter" metric:"tensorcache.table.changes" with:"tensorcache.outcome=failed"`
	}
	snapshots struct {
		Age     float64 `kind:"gauge" metric:"tensorcache.snapshot.age" unit:"s" help:"Time since the last snapshot that this process has written; of none, since its start."`
		Written int64   `kind:"counter" metric:"tensorcache.snapshots" with:"tensorcache.outcome=written" unit:"{snapshot}" help:"Snapshots written, or failed."`
		Failed  int64   `kind:"counter" metric:"tensorcache.snapshots" with:"tensorcache.outcome=failed"`
	}
	process struct {
		Memory     int64 `kind:"gauge" metric:"tensorcache.process.memory" unit:"By" help:"Resident memory of the process, shared memory among it."`
		Heap       int64 `kind:"gauge" metric:"tensorcache.process.go.heap" unit:"By" help:"Live and dead objects of the Go heap. Tables and caches do not lie there."`
		Go         int64 `kind:"gauge" metric:"tensorcache.process.go.memory" unit:"By" help:"All memory that the Go runtime has taken from the system."`
		Goroutines int64 `kind:"gauge" metric:"tensorcache.process.goroutines" unit:"{goroutine}" help:"Goroutines."`
		Files      int64 `kind:"gauge" metric:"tensorcache.process.files.open" unit:"{file}" help:"File descriptors that are open, connections among them."`
		MostFiles  int64 `kind:"gauge" metric:"tensorcache.process.files.limit" unit:"{file}" help:"File descriptors that the process may have open (RLIMIT_NOFILE)."`
	}
)

// snapshotResults counts snapshots.
type snapshotResults struct {
	written, failed atomic.Int64
	mu              sync.Mutex
	at              time.Time // of the last one that was written
	err             error     // of the last one
}

// note takes in the result of a snapshot.
func (s *snapshotResults) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err != nil {
		s.failed.Add(1)
		return
	}
	s.written.Add(1)
	s.at = time.Now()
}

// failure returns why the last snapshot was not written, nil if it was.
func (s *snapshotResults) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// age returns the time since the last one, or since the program has begun.
func (s *snapshotResults) age(begun time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.After(begun) {
		begun = s.at
	}
	return time.Since(begun)
}

// measure makes the metrics of the service, which are read when they are collected.
func (r *running) measure() (metric.Registration, error) {
	about := []attribute.KeyValue{
		attribute.String("version", version.Number), attribute.String("commit", version.Commit()), attribute.String("go", runtime.Version()),
		attribute.Bool("cuda", slices.Contains(strings.Split(version.Tags(), ","), "cuda")),
	}
	registered, err := declared.Register(otel.GetMeterProvider().Meter("github.com/tensorcache/tensorcache/serve/daemon"),
		[]any{build{}, service{}, changes{}, snapshots{}, process{}}, func(tell declared.Observe) {
			tell(&build{1}, about...)
			tell(r.service())
			tell(&changes{r.changesMade.Load(), r.changesFailed.Load()})
			if r.config.Snapshot != "" {
				tell(&snapshots{r.snapshots.age(r.started).Seconds(), r.snapshots.written.Load(), r.snapshots.failed.Load()})
			}
			tell(processNow())
		})
	if err != nil {
		return nil, fmt.Errorf("tensorcached: metrics: %w", err)
	}
	return registered, nil
}

func (r *running) service() *service {
	s := &service{Uptime: time.Since(r.started), Draining: r.leaving.Load() != nil, Pressure: math.NaN()}
	if tables := r.serving.Load(); tables != nil {
		s.Tables, s.Ready = int64(len(tables.View().Tables)), r.ready() == nil
		for _, holds := range r.unix.holding() {
			s.Attached++
			if holds > 0 {
				s.Holding, s.Held = s.Holding+1, max(s.Held, holds)
			}
		}
	}
	if r.httpConns != nil {
		s.HTTP, s.Refused = r.httpConns.now(), r.httpConns.cut.Load()
	}
	if p, _, err := memoryPressure(pressureFiles()); err == nil {
		s.Pressure = p
	}
	return s
}

func processNow() *process {
	p := &process{Goroutines: int64(runtime.NumGoroutine())}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	p.Heap, p.Go = int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64()-samples[2].Value.Uint64())
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident int64
		if _, err := fmt.Sscan(string(b), &size, &resident); err == nil {
			p.Memory = resident * int64(os.Getpagesize())
		}
	}
	if limit, used, known := openFiles(); known {
		p.Files, p.MostFiles = int64(used), int64(limit)
	}
	return p
}
