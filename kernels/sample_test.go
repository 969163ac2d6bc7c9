package kernels_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

type sample struct {
	key  uint64
	kept uint32
}

// lookupSampled looks the rows up in an empty map, appending samples to the ring. Row numbers are int32 in every other batch.
func (b *bench) lookupSampled(ring *kernels.SampleRing, batch uint32, rows []int64, limit int64, accesses, misses, keys float64) {
	layout, int32s := hashmap.LayoutFor(16), batch%2 == 1
	m := b.alloc(layout.Bytes())
	b.check(b.s.Fill(m, 0xff))
	k := &kernels.Lookup{
		Map: m, Layout: layout, Table: 3, Limit: limit, Rows: b.putRows(rows, int32s), Int32: int32s, Out: b.alloc(int64(len(rows))), RowBytes: 1,
		Found: b.alloc(int64(len(rows)) * kernels.FoundBytes), Counters: b.put(asBytes(make([]kernels.Counters, 1))),
		Samples: ring.Sampling(7, batch, accesses, misses, keys), Ring: ring,
	}
	b.launch(k)
}

func drain(ring *kernels.SampleRing) (all []sample, lost uint64) {
	lost = ring.Drain(func(key uint64, kept uint32) { all = append(all, sample{key, kept}) })
	slices.SortFunc(all, func(a, b sample) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.kept, b.kept)) })
	return all, lost
}

// TestSamples_EqualHost: both kinds of samples, whatever the batch's size, are the host's; their shares are what was asked
// for; row numbers out of range are not sampled.
func TestSamples_EqualHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	const limit = 5000
	for _, n := range []int{0, 1, 33, 1500, 100_000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		rows := make([]int64, n)
		for i := range rows {
			rows[i] = r.Int64N(limit+10) - 5
		}
		t.Run("", func(t *testing.T) {
			both(t, gpu, reason, func(b *bench) []sample {
				ring, err := kernels.NewSampleRing(b.d, false, 1<<16)
				b.check(err)
				defer ring.Close()
				var all []sample
				for batch := range uint32(2) {
					b.lookupSampled(ring, batch, rows, limit, 1.0/16, 1.0/4, 1.0/32)
					part, lost := drain(ring)
					if lost != 0 {
						t.Errorf("%d samples lost", lost)
					}
					all = append(all, part...)
				}
				return all
			}, func(t *testing.T, want, got []sample) {
				if !slices.Equal(want, got) {
					t.Fatalf("%d samples on the host, %d on the device, or others", len(want), len(got))
				}
				if n < 100_000 {
					return
				}
				access, byKey := 0, map[uint64]int{}
				for _, s := range want {
					if table, row := hashmap.SplitKey(s.key); table != 3 || row < 0 || row >= limit {
						t.Fatalf("sample of key %#x", s.key)
					}
					if s.kept&abi.SampledAccess != 0 {
						access++
					}
					if s.kept&abi.SampledKey != 0 {
						byKey[s.key]++
					}
				}
				if share := float64(access) / float64(2*n); share < 0.055 || share > 0.07 {
					t.Errorf("%.4f of the accesses are kept, want 1/16", share)
				}
				misses := 0
				for _, s := range want {
					if s.kept&abi.SampledMiss != 0 {
						misses++
					} else if s.kept&abi.SampledAccess != 0 {
						t.Fatalf("key %#x is kept as %d, and misses", s.key, s.kept)
					}
				}
				if share := float64(misses) / float64(2*n); share < 0.23 || share > 0.27 {
					t.Errorf("%.4f of the misses are kept, want 1/4", share)
				}
				if share := float64(len(byKey)) / limit; share < 0.02 || share > 0.045 {
					t.Errorf("%.4f of the keys are kept, want 1/32", share)
				}
				asked := map[uint64]int{}
				for _, row := range rows {
					if row >= 0 && row < limit {
						asked[hashmap.Key(3, row)] += 2
					}
				}
				for key, n := range byKey {
					if n != asked[key] {
						t.Errorf("key %#x: %d of its %d accesses are kept", key, n, asked[key])
					}
				}
			})
		})
	}
}

// TestSamples_OverrunIsCounted: what does not fit the ring is lost, counted, and the newest records are read.
func TestSamples_OverrunIsCounted(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	rows := make([]int64, 1000)
	for i := range rows {
		rows[i] = int64(i)
	}
	type result struct {
		read int
		lost uint64
	}
	both(t, gpu, reason, func(b *bench) result {
		ring, err := kernels.NewSampleRing(b.d, false, 256)
		b.check(err)
		defer ring.Close()
		var sum result
		for batch := range uint32(3) {
			for part := range slices.Chunk(rows, 250) { // a batch beyond the ring's size would race with itself
				b.lookupSampled(ring, batch, part, 1000, 1, 0, 1)
			}
			part, lost := drain(ring)
			sum.read += len(part)
			sum.lost += lost
		}
		return sum
	}, func(t *testing.T, want, got result) {
		if want != (result{3 * 256, 3 * 744}) || got != want {
			t.Errorf("host %+v, device %+v, want 256 of each 1000 read", want, got)
		}
	})
}

// TestSampleRing_BesideReader drains while goroutines append: nothing is read twice, made up, or left uncounted.
func TestSampleRing_BesideReader(t *testing.T) {
	t.Run("host", func(t *testing.T) { besideReader(t, host.Open(1, 1)[0], 50) })
	t.Run("gpu", func(t *testing.T) {
		gpu, reason := gputest.OpenIfAny(t)
		if gpu == nil {
			t.Skip(reason)
		}
		besideReader(t, gpu, 20)
	})
}

func besideReader(t *testing.T, d device.Device, batches int) {
	ring, err := kernels.NewSampleRing(d, false, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	const writers, n = 4, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			b := &bench{t, d, s}
			rows := make([]int64, n)
			for i := range rows {
				rows[i] = int64(w*n + i)
			}
			for batch := range uint32(batches) {
				b.lookupSampled(ring, batch, rows, writers*n, 1, 0, 1)
			}
		})
	}
	done := make(chan bool)
	go func() { wg.Wait(); close(done) }()
	seen, lost := map[uint64]int{}, uint64(0)
	count := func(key uint64, kept uint32) {
		if kept != abi.SampledAccess|abi.SampledKey {
			t.Errorf("key %#x kept for %d", key, kept)
		}
		seen[key]++
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		lost += ring.Drain(count)
	}
	lost += ring.Drain(count)
	total := lost
	for key, times := range seen {
		if table, row := hashmap.SplitKey(key); table != 3 || row >= writers*n || times > batches {
			t.Errorf("key %#x read %d times", key, times)
		}
		total += uint64(times)
	}
	if written := uint64(writers * batches * n); total != written {
		t.Errorf("%d samples read or lost, %d written", total, written)
	}
}

func TestNewSampleRing_BadCapacity(t *testing.T) {
	for _, n := range []int{0, -1, 3, 1000} {
		if _, err := kernels.NewSampleRing(host.Open(1, 1)[0], false, n); err == nil {
			t.Errorf("capacity %d: no error", n)
		}
	}
}

var _ device.Kernel = (*kernels.Lookup)(nil)
