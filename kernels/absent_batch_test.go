package kernels_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// absentRun is what an AbsentBatch left: lists in the order of positions, and the counters after List, after each Wait and as published.
type absentRun struct {
	present, absent, ahead []kernels.Found
	misses                 []uint32
	end                    kernels.Counters
	state                  []byte
}

// TestAbsentBatch_EqualsHost lists misses of a tier that holds none, some or all of its rows, waits for two rounds, and ends the batch, twice with the same
// memory.
func TestAbsentBatch_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	const rows, aheadFrom = 5000, 1 << 20
	for _, n := range []int{1, 33, 700, 9000} {
		for _, share := range []float64{0, 0.3, 1} { // of the rows, absent
			t.Run(fmt.Sprintf("%d of which %v", n, share), func(t *testing.T) {
				both(t, gpu, reason, func(b *bench) [2]absentRun {
					r := rand.New(rand.NewPCG(uint64(n), uint64(share*10)))
					index := make([]slab.Location, rows)
					for i := range index {
						switch x := r.Float64(); {
						case x < share:
							index[i] = slab.NoLocation(slab.Cold)
						case x < share+(1-share)/2:
							index[i] = slab.Raw(0, int64(i)*16)
						default:
							index[i] = slab.Compressed(0, aheadFrom+int64(i)*16, 1+r.IntN(100))
						}
					}
					zeros := func(n int64) device.Buffer { return b.put(make([]byte, n)) }
					k := &kernels.AbsentBatch{
						Resolved: zeros(int64(n) * 16), Words: zeros(int64(n) * 8), Rows: b.pinned(make([]byte, n*16)),
						Host: b.pinned(make([]byte, abi.AbsentHostBytes)), State: zeros(abi.AbsentStateBytes), Timeout: time.Minute,
						Tier: kernels.HostRows{Index: b.put(asBytes(index)), ReadAhead: &kernels.Ahead{From: aheadFrom}},
					}
					var runs [2]absentRun
					for batch := range runs {
						misses := r.IntN(n + 1)
						found := make([]kernels.Found, n)
						for i := range misses {
							found[n-1-i] = kernels.Found{Word: uint64(r.IntN(rows)), Position: uint32(i), Reason: uint32(r.IntN(slab.NumReasons))}
						}
						k.Misses, k.Counters = b.put(asBytes(found)), b.put(asBytes([]kernels.Counters{{Hits: 7, Misses: uint32(misses), HostBytes: 5}}))
						result := b.pinned(make([]byte, kernels.CountersBytes))
						k.Ending = kernels.Ending{Result: result, Batch: uint64(batch) + 1<<32 + 9, Kernels: 1}
						runs[batch] = b.absentRun(k, result)
						one := &runs[batch]
						if len(one.present)+len(one.absent) != misses {
							b.t.Fatalf("%d present, %d absent of %d", len(one.present), len(one.absent), misses)
						}
						for _, f := range one.absent {
							if index[f.Word].Valid() {
								b.t.Fatalf("row %d is listed as absent", f.Word)
							}
						}
						for _, f := range one.present { // Word is the row's location
							if want := index[found[n-1-int(f.Position)].Word]; slab.Location(f.Word) != want {
								b.t.Fatalf("position %d: %v, want %v", f.Position, slab.Location(f.Word), want)
							}
						}
					}
					return runs
				}, func(t *testing.T, want, got [2]absentRun) {
					if !reflect.DeepEqual(want, got) {
						t.Errorf("differs:\n%+v\n%+v", want, got)
					}
				})
			})
		}
	}
}

// absentRun runs a batch whose rounds are there before they are waited for: one of two rows, and one of one.
func (b *bench) absentRun(k *kernels.AbsentBatch, result device.Buffer) (all absentRun) {
	b.t.Helper()
	host := k.HostView()
	tag := uint64(uint32(k.Batch)) << 32
	note := func() { all.misses = append(all.misses, b.counters(k.Counters).Misses) }
	b.launch(k.List())
	note()
	if host.Listed>>32 != tag>>32 || host.Ahead>>32 != tag>>32 {
		b.t.Fatalf("listed %#x, ahead %#x, want batch %#x", host.Listed, host.Ahead, tag)
	}
	byPosition := func(a, b kernels.Found) int { return cmp.Compare(a.Position, b.Position) }
	rows := kernels.FoundView(k.Rows)
	all.absent = slices.SortedFunc(slices.Values(rows[:uint32(host.Listed)]), byPosition)
	all.ahead = slices.SortedFunc(slices.Values(rows[len(rows)-int(uint32(host.Ahead)):]), byPosition)
	resolved, words := kernels.FoundView(device.HostBuffer(b.get(k.Resolved))), b.get(k.Words)
	for i := range int(all.misses[0]) {
		f := resolved[len(resolved)-1-i]
		if f.Word != uint64(i) {
			b.t.Fatalf("word %d of miss %d", f.Word, i)
		}
		f.Word = binary.LittleEndian.Uint64(words[8*i:])
		all.present = append(all.present, f)
	}
	slices.SortFunc(all.present, byPosition)
	host.Rows = [2]uint32{2, 1}
	atomic.StoreUint64(&host.Ready, tag|abi.AbsentLast|2)
	for round := range 3 {
		b.launch(k.Wait(round))
		note()
	}
	if len(all.absent) > 0 && host.Consumed != tag|2 {
		b.t.Fatalf("consumed %#x", host.Consumed)
	}
	b.launch(k.End())
	all.end = *kernels.CountersView(result)
	if c := b.counters(k.Counters); c != (kernels.Counters{}) {
		b.t.Fatalf("counters are left: %+v", c)
	}
	all.state = b.get(k.State)
	return all
}

// TestAbsentBatch_GivesUp: rows that never arrive end the waiting, which says so.
func TestAbsentBatch_GivesUp(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	both(t, gpu, reason, func(b *bench) []uint32 {
		index, zeros := []slab.Location{slab.NoLocation(slab.Cold)}, func(n int64) device.Buffer { return b.put(make([]byte, n)) }
		k := &kernels.AbsentBatch{
			Misses: b.put(asBytes([]kernels.Found{{}})), Counters: b.put(asBytes([]kernels.Counters{{Misses: 1}})), Resolved: zeros(16), Words: zeros(8),
			Rows: b.pinned(make([]byte, 16)), Host: b.pinned(make([]byte, abi.AbsentHostBytes)), State: zeros(abi.AbsentStateBytes),
			Timeout: 20 * time.Millisecond, Tier: kernels.HostRows{Index: b.put(asBytes(index))}, Ending: kernels.Ending{Result: b.pinned(make([]byte, 64)), Batch: 3},
		}
		begun := time.Now()
		for _, one := range []device.Kernel{k.List(), k.Wait(0)} {
			b.launch(one)
		}
		if took := time.Since(begun); took < k.Timeout || took > 10*time.Second {
			b.t.Errorf("took %v", took)
		}
		b.launch(k.Wait(1)) // at once
		return []uint32{uint32(k.HostView().GaveUp), b.counters(k.Counters).Misses}
	}, func(t *testing.T, want, got []uint32) {
		if !slices.Equal(want, got) || got[0] != 3 || got[1] != 0 {
			t.Errorf("gave up and misses: %v, on the host %v", got, want)
		}
	})
}
