package kernels_test

import (
	"bytes"
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
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// absentRun is what an AbsentBatch left: lists in the order of positions, and the counters after List, after each Wait and as published.
type absentRun struct {
	present, absent, ahead []kernels.Found
	misses                 []uint32
	end                    kernels.Counters
	state                  []byte
}

// TestAbsentBatch_EqualsHost lists misses of a tier that holds none, some or all of its rows, waits for two rounds, and ends the batch, twice with the same
// memory. A third of the second batch is a row of padding, which is not listed where it is absent.
func TestAbsentBatch_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	const rows, aheadFrom, padding = 5000, 1 << 20, 3
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
						misses, skipped := r.IntN(n+1), 0
						if batch > 0 {
							k.Pool = &reduce.Batch{Padding: padding}
						}
						found := make([]kernels.Found, n)
						for i := range misses {
							row := r.IntN(rows)
							if batch > 0 && i%3 == 0 {
								row = padding
							}
							if batch > 0 && row == padding && !index[row].Valid() {
								skipped++
							}
							found[n-1-i] = kernels.Found{Word: uint64(row), Position: uint32(i), Reason: uint32(r.IntN(slab.NumReasons))}
						}
						k.Misses, k.Counters = b.put(asBytes(found)), b.put(asBytes([]kernels.Counters{{Hits: 7, Misses: uint32(misses), HostBytes: 5}}))
						result := b.pinned(make([]byte, kernels.CountersBytes))
						k.Ending = kernels.Ending{Result: result, Batch: uint64(batch) + 1<<32 + 9, Kernels: 1}
						runs[batch] = b.absentRun(k, result)
						one := &runs[batch]
						if len(one.present)+len(one.absent)+skipped != misses {
							b.t.Fatalf("%d present, %d absent, %d of absent padding of %d", len(one.present), len(one.absent), skipped, misses)
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
		if took := time.Since(begun); took < k.Timeout || took > time.Minute {
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

// absentBatch returns what a replay lists absent rows with.
func (in *serveInput) absentBatch(b *bench, k *kernels.Replay) *kernels.AbsentBatch {
	n := len(in.batch)
	return &kernels.AbsentBatch{
		Counters: b.alloc(kernels.CountersBytes), Tier: k.Serve.Tier, Host: b.pinned(make([]byte, abi.AbsentHostBytes)), Rows: b.pinned(make([]byte, n*16)),
		Ahead: b.pinned(make([]byte, n*8)), State: b.alloc(abi.AbsentStateBytes), Timeout: 10 * time.Millisecond, Replay: k.State,
		Ending: kernels.Ending{Batch: 1},
	}
}

// endAbsent waits for rows that do not arrive, and ends a replay. Exactly the absent rows of the batch are listed.
func (in *serveInput) endAbsent(b *bench, k *kernels.Replay, replay uint32) {
	b.t.Helper()
	a, host := k.Absent, k.Absent.HostView()
	index, m := b.get(a.Tier.Index), hashmap.View(asBytes(in.image), in.layout)
	want := map[uint32]uint64{}
	for i, row := range in.batch {
		if uint64(row) < uint64(in.rows) && !m.Find(hashmap.Key(serveTable, row)).Valid() && !slab.Location(binary.LittleEndian.Uint64(index[8*row:])).Valid() {
			want[uint32(i)] = uint64(row)
		}
	}
	b.launch(a.Wait(0))
	if len(want) == 0 {
		if host.Listed>>32 == uint64(replay) || host.GaveUp == uint64(replay) {
			b.t.Fatalf("replay %d without absent rows: listed %#x, gave up %d", replay, host.Listed, host.GaveUp)
		}
	} else if host.Listed != uint64(replay)<<32|uint64(len(want)) || host.GaveUp != uint64(replay) {
		b.t.Fatalf("replay %d of %d absent rows: listed %#x, gave up %d", replay, len(want), host.Listed, host.GaveUp)
	}
	for _, f := range kernels.FoundView(a.Rows)[:len(want)] {
		if row, ok := want[f.Position]; !ok || row != f.Word {
			b.t.Fatalf("position %d has row %d, want %d (%v)", f.Position, f.Word, row, ok)
		}
		delete(want, f.Position)
	}
	if host.Replayed != uint64(replay-1) {
		b.t.Fatalf("%d replays have ended before the end of replay %d", host.Replayed, replay)
	}
	b.launch(a.End())
	if host.Replayed != uint64(replay) || b.counters(a.Counters) != (kernels.Counters{}) {
		b.t.Fatalf("%d replays have ended, counters %+v", host.Replayed, b.counters(a.Counters))
	}
}

// TestReplay_ListsAbsentRows: replays list the rows that the tier does not hold, and write zeros where they are to be.
func TestReplay_ListsAbsentRows(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, name := range []string{"none", "ibp4", "rank"} {
		for j, rowBytes := range race.Some([]int{64, 1000, 4096}) {
			for k, every := range []int{1, 2, 0} { // of the rows, absent
				if short() && !gputest.Drawn(i+j+k, 3) {
					continue
				}
				t.Run(fmt.Sprintf("%s/row=%d/one of %d", name, rowBytes, every), func(t *testing.T) {
					in := newServeInput(t, rowBytes, 300, 700, name, transfer.Packed, .5, rand.New(rand.NewPCG(uint64(rowBytes), uint64(every))))
					in.replays, in.absent = 3, true
					gone := func(row int) bool { return every != 0 && row/2%every == 0 }
					both(t, gpu, reason, func(b *bench) serveResult {
						return in.serve(b, func(h kernels.HostRows) {
							index := b.get(h.Index)
							for i := range in.rows {
								if gone(i) {
									binary.LittleEndian.PutUint64(index[8*i:], uint64(slab.NoLocation(slab.Cold)))
								}
							}
							b.check(device.Upload(b.d, h.Index, index))
						})
					}, func(t *testing.T, want, got serveResult) {
						if want.count != got.count || got.count.Corrupt != 0 || !bytes.Equal(want.out, got.out) {
							t.Fatalf("counters %+v, want %+v, or other rows", got.count, want.count)
						}
						zeros, m := 0, hashmap.View(asBytes(in.image), in.layout)
						for i, row := range in.batch {
							if uint64(row) >= uint64(in.rows) {
								continue
							}
							want := in.data[int(row)*rowBytes:][:rowBytes]
							if gone(int(row)) && !m.Find(hashmap.Key(serveTable, row)).Valid() {
								zeros++
								want = make([]byte, rowBytes)
							}
							if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], want) {
								t.Fatalf("row %d at position %d is wrong", row, i)
							}
						}
						if (zeros > 0) != (every != 0) {
							t.Errorf("%d rows are absent", zeros)
						}
					})
				})
			}
		}
	}
}
