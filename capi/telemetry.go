package main

// #include "bridge.h"
import "C"

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/telemetry"
)

var (
	exporters      atomic.Pointer[telemetry.Telemetry]
	exportersBegun sync.Mutex
)

// startTelemetry sets up what the environment asks for, at the first opening of the process, whose logger then gets what cannot be delivered. After an
// error the next opening tries again. It sets the cache's limit of traces.
func startTelemetry(o *cache.TelemetryOptions) error {
	exportersBegun.Lock()
	defer exportersBegun.Unlock()
	if t := exporters.Load(); t != nil {
		o.TraceRate = t.TraceRate()
		return nil
	}
	copyEnvironment()
	t, err := telemetry.Start(context.Background(), telemetry.Options{
		Service: "tensorcache", MetricsAddr: os.Getenv("TENSORCACHE_METRICS_ADDR"), Logger: o.Logger, Console: os.Stderr,
	})
	if err != nil {
		return failure{C.TC_ERROR_ARGUMENT, err}
	}
	exporters.Store(t)
	o.TraceRate = t.TraceRate()
	return nil
}

// flushTelemetry delivers what there is, before and after a cache is closed, as nothing tells a library that its process ends.
func flushTelemetry() {
	if t := exporters.Load(); t != nil {
		t.Flush()
	}
}

// copyEnvironment has Go see the variables that the program has set since it began. A Go runtime in a library reads the environment that the
// process was started with.
func copyEnvironment() {
	now := map[string]string{}
	for p := C.environ; p != nil && *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		if name, value, ok := strings.Cut(C.GoString(*p), "="); ok && ours(name) {
			now[name] = value
		}
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); ours(name) {
			if _, ok := now[name]; !ok {
				os.Unsetenv(name)
			}
		}
	}
	for name, value := range now {
		if had, ok := os.LookupEnv(name); !ok || had != value {
			os.Setenv(name, value)
		}
	}
}

// ours says whether the library reads an environment variable.
func ours(name string) bool {
	return strings.HasPrefix(name, "OTEL_") || strings.HasPrefix(name, "TENSORCACHE_") || name == "HOME" || name == "XDG_CACHE_HOME"
}
