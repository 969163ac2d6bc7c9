package cache_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

// TestMisses_AddUp makes rows of caches on one to four devices miss for all reasons, in random order. The lookups are always those of the
// Gathers, and hits by slab and misses by reason are equal in Stats, metrics and spans.
func TestMisses_AddUp(t *testing.T) {
	race.SkipSequential(t)
	var seen [slab.NumReasons]int64
	peers, lost := int64(0), int64(0)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			u := newAddUp(t, seed)
			phases := []string{"gather", "refresh", "update", "invalidate", "device", "budget", "refresh"}
			if len(u.faulty.devices) > 1 {
				phases = append(phases, "lose")
			}
			u.rng.Shuffle(len(phases), func(i, j int) { phases[i], phases[j] = phases[j], phases[i] })
			u.check("at first")
			for _, phase := range phases {
				u.run(phase)
				u.check(phase)
				u.explained()
				u.check("all rows after " + phase)
			}
			s := stats(t, u.c)
			for _, ts := range s.Tables {
				for reason, n := range ts.MissesByReason {
					seen[reason] += n
				}
				peers += ts.PeerHits
			}
			lost += s.Placement.LostRows
		})
	}
	for reason, n := range seen {
		if n == 0 {
			t.Errorf("nothing missed because it was %v", slab.Reason(reason))
		}
	}
	if peers == 0 || lost == 0 {
		t.Errorf("%d hits in slabs of peers, %d rows lost with their slabs", peers, lost)
	}
}

// addUp is a cache, its telemetry, and the lookups that it was asked for.
type addUp struct {
	t      *testing.T
	rng    *rand.Rand
	c      *cache.Cache
	r      *recorder
	faulty *faulty
	mu     sync.Mutex
	asked  [2]int64 // lookups of each table that succeeded
}

// Table x has short rows. Rows of table y are longer than a slab.
const (
	addUpRows, addUpBytes = 400, 128
	addUpLong, longBytes  = 3, 40_000
)

func newAddUp(t *testing.T, seed uint64) *addUp {
	u := &addUp{t: t, rng: rand.New(rand.NewPCG(seed, 7)), r: newRecorder(t, sdktrace.AlwaysSample()), faulty: openFaulty(t, nil)}
	devices := 1 + int(seed%4)
	x, err := cache.FromBytes("x", dtype.Float32, normalTable(addUpRows, addUpBytes/4, seed), addUpBytes)
	if err != nil {
		t.Fatal(err)
	}
	o := cache.Options{
		Tables: []cache.Table{x.WithCapacity(addUpRows + 50), fromBytes(t, "y", noise(addUpLong, longBytes, seed), longBytes)},
		Budget: int64(24_000 / devices), Devices: cache.DeviceOptions{Count: devices, Backend: "host", Placement: []cache.PlacementMode{cache.PlacementPartition, cache.PlacementReplicate}[seed/3%2]}, Seed: seed, Telemetry: u.r.options(),
		Refresh: cache.RefreshOptions{Accesses: 1, MaxChurn: 1},

		Admission: cache.AdmissionOptions{Training: batches(0, zipf(u.rng, addUpRows/2, 2000))},
	}
	if seed%2 == 0 {
		o.Host.Tier = cache.Packed
	}
	if seed%3 == 0 {
		o.Admission.Policy = &randomPolicy{}
	}
	u.c = newCache(t, o)
	return u
}

// gather gathers rows of a table by a random method of Cache or View.
func (u *addUp) gather(rng *rand.Rand, table int, rows []int64) {
	out := make([]byte, len(rows)*u.c.RowBytes(table))
	var err error
	if rng.IntN(2) == 0 {
		err = u.c.Gather(ctx, cache.Request{Table: table, Rows: rows, Out: out})
	} else {
		err = u.c.GatherAsync(ctx, cache.Request{Table: table, Rows: rows, Out: out}).Wait()
	}
	if err != nil {
		u.t.Error(err)
		return
	}
	u.count(table, len(rows))
}

func (u *addUp) count(table, rows int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked[table] += int64(rows)
}

// batch returns some rows of a table.
func (u *addUp) batch(rng *rand.Rand, table int) []int64 {
	rows := make([]int64, 1+rng.IntN(60))
	for i := range rows {
		rows[i] = rng.Int64N(u.c.Rows(table))
	}
	return rows
}

// run calls a function that changes the cache while four goroutines gather.
func (u *addUp) run(phase string) {
	t, c := u.t, u.c
	var wg sync.WaitGroup
	for g := range uint64(4) {
		rng := rand.New(rand.NewPCG(g, u.rng.Uint64()))
		wg.Go(func() {
			for range 8 {
				table := 0
				if rng.IntN(8) == 0 {
					table = 1
				}
				u.gather(rng, table, u.batch(rng, table))
			}
		})
	}
	var err error
	switch phase {
	case "refresh":
		for range 4 {
			if err == nil {
				err = c.Refresh(ctx)
			}
		}
	case "update":
		for range 10 {
			rows := []int64{u.rng.Int64N(addUpRows), u.rng.Int64N(addUpRows), min(u.c.Rows(0), addUpRows+49)}
			if err == nil {
				err = c.Update(ctx, 0, rows, noise(len(rows), addUpBytes, u.rng.Uint64()))
			}
		}
	case "invalidate":
		err = c.Invalidate(0, u.batch(u.rng, 0))
	case "device":
		for range 10 {
			table := u.rng.IntN(2)
			d, rows := u.live(), u.batch(u.rng, table)
			var b *cache.Batch
			out := make([]byte, len(rows)*c.RowBytes(table))
			if b, err = c.On(d).Enqueue(ctx, 0, cache.Request{Table: table, DeviceRows: device.HostBuffer(cache.AsBytes(rows)), DeviceOut: device.HostBuffer(out)}); err != nil {
				break
			}
			if err = b.Wait(); err != nil {
				break
			}
			u.count(table, len(rows))
		}
	case "budget":
		err = c.SetBudget(ctx, stats(t, c).BudgetBytes/int64(len(u.faulty.devices))*3/4)
	case "lose":
		u.faulty.lose(u.live())
	}
	wg.Wait()
	if err != nil {
		t.Fatalf("%s: %v", phase, err)
	}
	if phase == "lose" { // a Gather waits until the slab is withdrawn
		u.gather(u.rng, 0, []int64{0})
	}
	settle(t, c)
}

// live returns a device that is not lost.
func (u *addUp) live() int {
	for {
		if d := u.rng.IntN(len(u.faulty.devices)); u.faulty.devices[d].Err() == nil {
			return d
		}
	}
}

// explained gathers all rows, and compares the counted reasons with those of Explain.
func (u *addUp) explained() {
	t, before := u.t, stats(u.t, u.c)
	for table := range 2 {
		rows := make([]int64, u.c.Rows(table))
		for i := range rows {
			rows[i] = int64(i)
		}
		explained, err := u.c.Explain(table, rows)
		if err != nil {
			t.Fatal(err)
		}
		var want [slab.NumReasons]int64
		for _, e := range explained {
			if !e.Cached {
				want[e.Reason]++
			}
		}
		u.gather(u.rng, table, rows)
		if got := stats(t, u.c).Sub(before).Tables[table]; got.MissesByReason != want {
			t.Errorf("table %d: misses %v, explained %v", table, got.MissesByReason, want)
		}
	}
}

// check compares Stats, metrics and spans with each other and with the lookups asked for.
func (u *addUp) check(when string) {
	t := u.t
	t.Helper()
	s, v := stats(t, u.c), u.r.collect(t)
	var tables, devices cache.DeviceStats
	moved := int64(0)
	for i, ts := range s.Tables {
		tables.Gathers, tables.Lookups, tables.Misses = tables.Gathers+ts.Gathers, tables.Lookups+ts.Lookups, tables.Misses+ts.Misses
		tables.LocalHits, tables.PeerHits = tables.LocalHits+ts.LocalHits, tables.PeerHits+ts.PeerHits
		moved += ts.HostBytesMoved
		spans := u.spanSums("gather " + ts.Name)
		table := "tensorcache.table.name=" + ts.Name
		want := map[string]int64{
			"tensorcache.lookups{" + table + "}":                        u.asked[i],
			"tensorcache.gathers{" + table + "}":                        spans["gathers"],
			"tensorcache.hits{tensorcache.hit.slab=own," + table + "}":  ts.LocalHits,
			"tensorcache.hits{tensorcache.hit.slab=peer," + table + "}": ts.PeerHits,
		}
		sum := int64(0)
		for reason, n := range ts.MissesByReason {
			name := slab.Reason(reason).String()
			want[fmt.Sprintf("tensorcache.misses{tensorcache.miss.reason=%s,%s}", name, table)] = n
			if sum += n; spans["misses_"+name] != n {
				t.Errorf("%s: spans of %s have %d misses that are %s, Stats %d", when, ts.Name, spans["misses_"+name], name, n)
			}
		}
		for key, n := range want {
			if got, ok := v[key]; !ok || got != float64(n) {
				t.Errorf("%s: %s = %v (there: %v), want %d", when, key, got, ok, n)
			}
		}
		if sum != ts.Misses || ts.Lookups != u.asked[i] || ts.Hits+ts.Misses != ts.Lookups || ts.LocalHits+ts.PeerHits != ts.Hits ||
			spans["hits"] != ts.Hits || spans["misses"] != ts.Misses || spans["rows"] != ts.Lookups || spans["host_bytes"] != ts.HostBytesMoved {
			t.Errorf("%s: %d lookups asked for; reasons sum to %d; spans %v; Stats %+v", when, u.asked[i], sum, spans, ts)
		}
	}
	for _, d := range s.Devices {
		devices.Gathers, devices.Lookups, devices.Misses = devices.Gathers+d.Gathers, devices.Lookups+d.Lookups, devices.Misses+d.Misses
		devices.LocalHits, devices.PeerHits = devices.LocalHits+d.LocalHits, devices.PeerHits+d.PeerHits
	}
	if tables != devices {
		t.Errorf("%s: of the tables %+v, of the devices %+v", when, tables, devices)
	}
	if got := v["tensorcache.io{tensorcache.io.direction=read,tensorcache.io.path=host_tier}"]; got != float64(moved) {
		t.Errorf("%s: %v bytes from the host tier, Stats %d", when, got, moved)
	}
}

// spanSums returns the sums of the attributes of successful Gathers' spans, and the number of spans.
func (u *addUp) spanSums(name string) map[string]int64 {
	sums := map[string]int64{}
	for _, s := range u.r.named(name) {
		if s.Status().Code == codes.Error { // on a device that was lost: another one served the batch
			continue
		}
		sums["gathers"]++
		at := attributes(s.Attributes())
		for _, key := range []string{"rows", "hits", "misses", "host_bytes", "misses_cold", "misses_rejected", "misses_evicted", "misses_invalidated", "misses_oversize"} {
			sums[key] += at["tensorcache.batch."+key].AsInt64()
		}
	}
	return sums
}
