package cache_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
)

// reloadable returns a cache of 1,000 rows of 64 bytes, some 100 of them cached.
func reloadable(t *testing.T, refresh cache.RefreshOptions, p admission.Policy) *cache.Cache {
	t.Helper()
	table, err := cache.FromSlice("t", make([]int32, 1000*16), 16)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: 12 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		Host: cache.HostOptions{NoEqualRows: true}, Refresh: refresh, Admission: cache.AdmissionOptions{Policy: p},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func cycles(t *testing.T, c *cache.Cache) int64 {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Changes.Cycles
}

// TestCache_SetRefresh: an interval begins, changes and ends while the cache is open, and the churn applies to the next cycle.
func TestCache_SetRefresh(t *testing.T) {
	p := &scripted{}
	c := reloadable(t, cache.RefreshOptions{Accesses: 1}, p)
	if err := c.SetRefresh(cache.RefreshOptions{Interval: time.Millisecond, MaxChurn: 0.01}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); cycles(t, c) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no cycles after an interval was set")
		}
	}
	if err := c.SetRefresh(cache.RefreshOptions{MaxChurn: 0.01}); err != nil {
		t.Fatal(err)
	}
	n := cycles(t, c)
	time.Sleep(20 * time.Millisecond)
	if now := cycles(t, c); now > n+1 { // one may have been due
		t.Errorf("%d cycles after the interval was set to 0", now-n)
	}
	evicted := func(churn float64) int64 {
		if err := c.SetRefresh(cache.RefreshOptions{MaxChurn: churn}); err != nil {
			t.Fatal(err)
		}
		var ranking []uint64 // of rows that are not cached
		for r := int64(999); r >= 0 && len(ranking) < 400; r-- {
			if cached, err := c.Cached(0, []int64{r}, nil); err != nil {
				t.Fatal(err)
			} else if !cached[0] {
				ranking = append(ranking, hashmap.Key(0, r))
			}
		}
		p.set("", ranking)
		before, _ := c.Stats()
		if err := c.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		after, _ := c.Stats()
		return after.Changes.EvictedRows - before.Changes.EvictedRows
	}
	if few, all := evicted(0.02), evicted(1); few < 1 || all < 10*few {
		t.Errorf("evicted %d rows with a churn of 0.02, %d with 1", few, all)
	}
}

func TestCache_SetRefresh_BadInput(t *testing.T) {
	sampling, still := reloadable(t, cache.RefreshOptions{Accesses: 0.5}, &scripted{}), reloadable(t, cache.RefreshOptions{}, &scripted{})
	for _, bad := range []struct {
		c    *cache.Cache
		o    cache.RefreshOptions
		want string
	}{
		{sampling, cache.RefreshOptions{Accesses: 0.25}, "cache: Refresh.Accesses (0.25) must stay 0.5: it cannot change while the cache is open"},
		{sampling, cache.RefreshOptions{Keys: 1}, "cache: Refresh.Keys (1) must stay 0: it cannot change while the cache is open"},
		{sampling, cache.RefreshOptions{OnKeys: func(int, []int64) {}}, "cache: Refresh.OnKeys must be nil: it cannot change while the cache is open"},
		{sampling, cache.RefreshOptions{Interval: -1}, "cache: Refresh.Interval (-1ns) must not be negative"},
		{sampling, cache.RefreshOptions{MaxChurn: 2}, "cache: Refresh.MaxChurn (2) must be 0 to 1"},
		{still, cache.RefreshOptions{Interval: time.Second}, "cache: Refresh.Interval (1s) must be 0 of a cache that was opened without Refresh.Accesses"},
	} {
		if err := bad.c.SetRefresh(bad.o); !errors.Is(err, cache.ErrOptions) || err.Error() != bad.want {
			t.Errorf("%+v:\n got %v\nwant %s", bad.o, err, bad.want)
		}
	}
	sampling.Close()
	if err := sampling.SetRefresh(cache.RefreshOptions{}); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCache_SetPolicy: the new policy has observed each cached row once and none other, ranks the next cycle, and replaces one that has panicked.
// One that does not start is closed, and changes nothing.
func TestCache_SetPolicy(t *testing.T) {
	ctx := context.Background()
	old := &scripted{ranking: []uint64{hashmap.Key(0, 1)}}
	c := reloadable(t, cache.RefreshOptions{Accesses: 1}, old)
	bad := &scripted{panics: "Start"}
	if err := c.SetPolicy(bad); !errors.Is(err, cache.ErrPolicy) || !strings.HasPrefix(err.Error(), "cache: policy scripted: ") {
		t.Errorf("a policy that panics in Start: %v", err)
	}
	if err := c.Refresh(ctx); err != nil {
		t.Errorf("after a policy that did not start: %v", err)
	}
	old.set("Rank", nil)
	if err := c.Refresh(ctx); !errors.Is(err, cache.ErrPolicy) {
		t.Fatalf("a policy that panics in Rank: %v", err)
	}
	fresh := &scripted{}
	if err := c.SetPolicy(fresh); err != nil {
		t.Fatal(err)
	}
	for row := range int64(1000) {
		cached, err := c.Cached(0, []int64{row}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if cached[0] {
			want = 1
		}
		if got := fresh.observed[hashmap.Key(0, row)]; got != want {
			t.Fatalf("row %d, cached %v, was observed %d times", row, cached[0], got)
		}
	}
	if len(fresh.observed) == 0 || fresh.capacity < 4<<10 || fresh.capacity > 12<<10 {
		t.Errorf("observed %d rows at a capacity of %d B", len(fresh.observed), fresh.capacity)
	}
	var wanted int64 = -1
	for row := range int64(1000) {
		if fresh.observed[hashmap.Key(0, row)] == 0 {
			wanted = row
		}
	}
	fresh.set("", []uint64{hashmap.Key(0, wanted)})
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if cached, err := c.Cached(0, []int64{wanted}, nil); err != nil || !cached[0] {
		t.Errorf("the new policy's row is not cached: %v", err)
	}
	if s, _ := c.Stats(); s.PolicyError != "" {
		t.Errorf("Stats still has %q", s.PolicyError)
	}
}

// TestCache_SetPolicy_Weights: misses that are sampled more than hits count once to a policy that cannot weigh, and only in the share of all accesses.
func TestCache_SetPolicy_Weights(t *testing.T) {
	c := reloadable(t, cache.RefreshOptions{Accesses: 1. / 8, Misses: 1}, admission.NewFrequency())
	p := &scripted{}
	if err := c.SetPolicy(p); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	cached := len(p.observed)
	var misses []int64
	for row := range int64(1000) {
		if p.observed[hashmap.Key(0, row)] == 0 {
			misses = append(misses, row)
		}
	}
	p.mu.Unlock()
	const times = 40
	for range times {
		if err := c.Gather(context.Background(), cache.Request{Rows: misses, Out: make([]byte, len(misses)*64)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Stats(); err != nil { // drains the samples
		t.Fatal(err)
	}
	observed := 0
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.observed {
		observed += n
	}
	lookups := times * len(misses)
	if share := float64(observed-cached) / float64(lookups); share < 0.08 || share > 0.18 {
		t.Errorf("the policy observed %.3f of the misses, want 1/8", share)
	}
}
