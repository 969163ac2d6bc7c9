package cache_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestRefresh_OnBusyProcessors: Refresh, SetBudget and Explain do not wait for the policy's goroutines while Gathers keep all processors busy.
func TestRefresh_OnBusyProcessors(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector is slow")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const rows, rowBytes, budget = 50_000, 64, 800_000
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", noise(rows, rowBytes, 1), rowBytes)}, Budget: budget, Devices: cache.DeviceOptions{Backend: "host"},
		Admission: cache.AdmissionOptions{Policy: admission.NewTinyLFU()}, Refresh: cache.RefreshOptions{Accesses: 1},
	})
	busy, stop := context.WithCancel(ctx)
	var gatherers sync.WaitGroup
	defer gatherers.Wait()
	defer stop()
	for i := range 4 {
		gatherers.Go(func() {
			ids, out := zipf(rand.New(rand.NewPCG(uint64(i), 1)), rows, 10_000), make([]byte, 10_000*rowBytes)
			for busy.Err() == nil {
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	for what, call := range map[string]func() error{
		"Refresh":   func() error { return c.Refresh(ctx) },
		"SetBudget": func() error { return c.SetBudget(ctx, budget*3/4) },
		"Explain":   func() error { _, err := c.Explain(0, []int64{1}); return err },
	} {
		begun := time.Now()
		if err := call(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s took %v", what, took)
		} else {
			t.Log(what, took)
		}
	}
}
