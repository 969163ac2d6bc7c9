//go:build linux

package serve_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

const (
	benchRows    = 400_000
	benchColumns = 128 // float32
	benchBatch   = 4096
)

// benchCache is a table of 200 MB of which half is cached.
func benchCache(b testing.TB, shared bool) *cache.Cache {
	r := rand.New(rand.NewPCG(1, 1))
	values := make([]float32, benchRows*benchColumns)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	table, err := cache.FromSlice("rows", values, benchColumns)
	if err != nil {
		b.Fatal(err)
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: 110 << 20, Codec: cache.CodecNone, Shared: shared, Host: cache.HostOptions{Workers: 1},
		Devices: cache.DeviceOptions{Backend: cache.BackendHost},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// gatherFor gathers random batches until stop is set and returns the rows per second.
func gatherFor(c *cache.Cache, seed uint64, stop *atomic.Bool) (float64, error) {
	r := rand.New(rand.NewPCG(seed, 3))
	ids, out := make([]int64, benchBatch), make([]byte, benchBatch*benchColumns*4)
	begun, rows := time.Now(), 0
	for !stop.Load() {
		for i := range ids {
			ids[i] = r.Int64N(benchRows)
		}
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
			return 0, err
		}
		rows += len(ids)
	}
	return float64(rows) / time.Since(begun).Seconds(), nil
}

func init() {
	// bench ADDRESS: for each line of the test, gathers for a while and says how many rows a second.
	roles["bench"] = func(p *parent, args []string) error {
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Workers: 1})
		if err != nil {
			return err
		}
		p.say("attached")
		for {
			if _, ok := p.wait(); !ok {
				return c.Close()
			}
			var stop atomic.Bool
			time.AfterFunc(benchTime, func() { stop.Store(true) })
			rate, err := gatherFor(c, 1, &stop)
			if err != nil {
				return err
			}
			p.tell(rate)
		}
	}
}

const benchTime = 300 * time.Millisecond

// BenchmarkGather compares one process with a cache of its own, the owner of a shared cache, and clients: two threads that gather, in one process or
// one in each of two. The three take turns.
func BenchmarkGather(b *testing.B) {
	own, c := benchCache(b, false), benchCache(b, true)
	s := listen(b, c, serve.Options{})
	var clients []*child
	for range 2 {
		clients = append(clients, start(b, "bench", s.Address()))
		clients[len(clients)-1].expect("attached")
	}
	inProcess := func(c *cache.Cache) (sum float64) {
		var stop atomic.Bool
		var wg sync.WaitGroup
		var rates [2]float64
		for i := range rates {
			wg.Go(func() { rates[i], _ = gatherFor(c, uint64(i), &stop) })
		}
		time.Sleep(benchTime)
		stop.Store(true)
		wg.Wait()
		return rates[0] + rates[1]
	}
	byClients := func() (sum float64) {
		for _, c := range clients {
			c.say("go")
		}
		for _, c := range clients {
			var rate float64
			if err := json.Unmarshal([]byte(c.line()), &rate); err != nil {
				b.Fatal(err)
			}
			sum += rate
		}
		return sum
	}
	var sums [3]float64
	for range b.N {
		for i, f := range []func() float64{func() float64 { return inProcess(own) }, func() float64 { return inProcess(c) }, byClients} {
			sums[i] += f()
		}
	}
	for i, name := range []string{"own", "owner", "clients"} {
		b.ReportMetric(sums[i]/float64(b.N)/1e6, name+"-Mrows/s")
	}
	b.ReportMetric(sums[2]/sums[0], "clients/own")
	b.ReportMetric(0, "ns/op")
	b.Logf("%d rows of %d bytes", benchRows, benchColumns*4)
}
