package cache_test

import (
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
)

// slowRanking is a scripted policy that says when it is asked to rank, and does so when it is told to.
type slowRanking struct {
	scripted
	asked, begin chan struct{}
}

func (p *slowRanking) Rank() iter.Seq[uint64] {
	if p.asked != nil {
		close(p.asked)
		<-p.begin
		p.asked = nil
	}
	return p.scripted.Rank()
}

// TestSampling_GoesOnWhileThePolicyRanks: the ring is read meanwhile, so that four rings of accesses are observed later. Those that come on top of
// them are counted as lost. A ring holds 65,536; while a cycle kept it from being read, all others were lost.
func TestSampling_GoesOnWhileThePolicyRanks(t *testing.T) {
	const rows, rowBytes, batch, ring = 1000, 16, 30_000, 1 << 16
	p := &slowRanking{}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", make([]byte, rows*rowBytes), rowBytes)}, Codec: "none", Budget: 10_000, Devices: cache.DeviceOptions{Backend: "host"},
		Admission: cache.AdmissionOptions{Policy: p}, Refresh: cache.RefreshOptions{Accesses: 1, Interval: time.Hour},
	})
	p.asked, p.begin = make(chan struct{}), make(chan struct{})
	asked, cycle := p.asked, make(chan error, 1)
	begin := sync.OnceFunc(func() { close(p.begin) })
	t.Cleanup(begin) // before the cache is closed
	go func() { cycle <- c.Refresh(ctx) }()
	<-asked
	ids, out := make([]int64, batch), make([]byte, batch*rowBytes)
	for i := range ids {
		ids[i] = int64(i % rows)
	}
	const batches = 10
	for i := range int64(batches) {
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			if n := stats(t, c).Changes; n.SampledAccesses+n.LostAccesses == (i+1)*batch {
				break
			} else if time.Since(begun) > time.Minute {
				t.Fatalf("%d samples are read and %d lost while the policy ranks, of %d", n.SampledAccesses, n.LostAccesses, (i+1)*batch)
			}
		}
	}
	if n := stats(t, c).Changes; n.SampledAccesses != 4*ring || n.LostAccesses != batches*batch-4*ring {
		t.Errorf("%d samples are read and %d lost, want %d and %d", n.SampledAccesses, n.LostAccesses, 4*ring, batches*batch-4*ring)
	}
	begin()
	if err := <-cycle; err != nil {
		t.Fatal(err)
	}
	refresh(t, c)
	observed := 0
	for _, n := range p.observed {
		observed += n
	}
	if observed != 4*ring {
		t.Errorf("%d accesses observed, want %d", observed, 4*ring)
	}
}

// TestRefresh_AdmitsInSlices: a large cycle serves its best newcomers before those rows are evicted that give way to its last ones.
func TestRefresh_AdmitsInSlices(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes, budget = 700_000, 16, 11 << 20
	p := &scripted{}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", make([]byte, rows*rowBytes), rowBytes)}, Codec: "none", Budget: budget,
		Admission: cache.AdmissionOptions{Policy: p}, Refresh: cache.RefreshOptions{MaxChurn: 1}, Devices: cache.DeviceOptions{Backend: "host"},
	})
	cached := func(rows []int64) (isCached []bool) {
		e, err := c.Explain(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range e {
			isCached = append(isCached, e.Cached)
		}
		return isCached
	}
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	var old, others []int64
	for row, is := range cached(all) {
		if is {
			old = append(old, int64(row))
		} else {
			others = append(others, int64(row))
		}
	}
	if len(old) < 200_000 || len(others) < len(old) {
		t.Fatalf("%d rows are cached, %d are not", len(old), len(others))
	}
	var ranking []uint64
	for _, row := range others[:len(old)] {
		ranking = append(ranking, hashmap.Key(0, row))
	}
	p.set("", ranking)
	var watched []int64 // the best newcomer, and rows that have to go
	watched = append(watched, others[0])
	for i := 0; i < len(old); i += 1000 {
		watched = append(watched, old[i])
	}
	cycle := make(chan error, 1)
	go func() { cycle <- c.Refresh(ctx) }()
	most := 0 // of them beside the best newcomer
	for done := false; !done; {
		select {
		case err := <-cycle:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		if is := cached(watched); is[0] {
			there := 0
			for _, is := range is[1:] {
				if is {
					there++
				}
			}
			if done && there > 0 {
				t.Errorf("%d of %d rows that have to go are left", there, len(is)-1)
			}
			most = max(most, there)
		}
	}
	if most < len(watched)/4 {
		t.Errorf("%d of %d rows that have to go were served beside the best newcomer", most, len(watched)-1)
	}
}
