//go:build cuda && linux

package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
	"github.com/tensorcache/tensorcache/transfer"
)

// What the cases of resident tables are measured with.
var (
	buddyRows    = []int{256, 512, 1024, 4096}
	buddyBatches = []int{16_384, 200_000, 1 << 20}
	buddyShares  = []int{10, 30} // percent of a batch's rows that have bytes in buddy memory
	buddyCodecs  = []cache.Codec{registry.None, codecName, "rank"}
)

// In buddy-overflow so many of ten rows are stored raw, whatever their codec says, so that they do not fit their slots.
const rawOfTen = 3

// A resident is a table in device memory with Buddy slots, and kernels that read it.
type resident struct {
	*runner
	tier  *transfer.Tier
	of    *table
	table kernels.Resident
	codec kernels.Codec
	rows  int64
}

// resident puts the rows of a tier in slots that hold all of them, or, if raw, all but those that are stored raw: rows 0, 1 and 2 of each ten.
func (r *runner) resident(tier *transfer.Tier, of *table, raw bool) *resident {
	x := &resident{runner: r, tier: tier, of: of, rows: tier.Rows() / 10 * 10}
	rowBytes, longest := tier.RowBytes(), 1
	stored := func(row int64) ([]byte, bool) {
		if raw && row%10 < rawOfTen {
			return of.host.Bytes()[row*int64(rowBytes):][:rowBytes], false
		}
		s, compressed, err := tier.Stored(row)
		must(err)
		return s, compressed
	}
	for row := range x.rows {
		if raw && row%10 < rawOfTen {
			continue
		}
		s, _ := stored(row)
		longest = max(longest, len(s))
	}
	target := slab.SlotBytes(longest)
	if raw && target >= rowBytes {
		must(fmt.Errorf("rows of %d bytes: some stay raw, and none would overflow", rowBytes))
	}
	layout := get(buddy.NewLayout(target, rowBytes, x.rows, 1))
	slots, words := r.staging(layout.SlotsBytes(0)), make([]uint64, x.rows)
	var over device.Buffer
	if n := layout.BuddyBytes(0); n > 0 && raw {
		over = get(r.d.AllocHost(n, "benchmark's buddy memory"))
		r.buffers = append(r.buffers, over)
	}
	parallel(int(x.rows), func(from, to int) {
		for row := int64(from); row < int64(to); row++ {
			s, compressed := stored(row)
			first, rest := layout.Split(s)
			copy(slots.Bytes()[layout.Slot(row):], first)
			if len(rest) > 0 {
				copy(over.Bytes()[layout.Overflow(row):], rest)
			}
			words[row] = uint64(buddy.Home(len(s), compressed))
		}
	})
	x.table = kernels.Resident{Layout: layout}
	x.table.Slots[0], x.table.Words[0], x.table.Buddy[0] = r.put(slots.Bytes()), r.put(asBytes(words)), over
	x.codec = get(kernels.AttachCodec(r.d, tier.Codec()))
	r.buffers = append(r.buffers, x.codec.Meta)
	return x
}

// reads returns kernels that read batches.
func (x *resident) reads(t turns, out device.Buffer) (all [sets]device.Kernel) {
	result := get(x.d.AllocHost(sets*kernels.CountersBytes, "benchmark"))
	counters := x.put(make([]byte, kernels.CountersBytes))
	x.buffers = append(x.buffers, result)
	for i := range all {
		all[i] = &kernels.Serve{
			Lookup: kernels.Lookup{Limit: x.rows, Rows: t.rows[i], Out: out, RowBytes: x.table.RowBytes, Counters: counters},
			Codec:  x.codec, Result: result.Slice(int64(i)*kernels.CountersBytes, int64(i+1)*kernels.CountersBytes), Batch: 1, Resident: &x.table,
		}
	}
	return all
}

// time returns the median seconds of batches and compares the last one's rows with their source.
func (x *resident) time(t turns, out device.Buffer) float64 {
	all := x.reads(t, out)
	seconds := x.launches(all)
	if c := kernels.CountersView(all[(warmups+x.o.Runs-1)%sets].(*kernels.Serve).Result); int(c.Hits) != t.size() || c.Corrupt != 0 {
		must(fmt.Errorf("%d hits of %d rows, %d corrupt", c.Hits, t.size(), c.Corrupt))
	}
	check(x.d, "resident table", out, x.of.host.Bytes(), t.last(x.o.Runs), x.table.RowBytes)
	return seconds
}

func (x *resident) result(name string, codec cache.Codec, batch int, seconds float64) Result {
	rowBytes := x.table.RowBytes
	return Result{
		Case: name, RowBytes: rowBytes, Codec: string(codec), TableBytes: x.rows * int64(rowBytes), Batch: batch, Unit: "GB/s",
		Value:  float64(batch*rowBytes) / 1e9 / seconds,
		Detail: fmt.Sprintf("target %d, %.1f µs", x.table.Target, seconds*1e6),
	}
}

// eachResident calls do with a table in device memory for each codec and row length of these cases.
func (r *runner) eachResident(raw bool, codecs []cache.Codec, do func(x *resident, codec cache.Codec)) {
	t := r.normalRows()
	for _, rowBytes := range buddyRows {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		for _, name := range codecs {
			tier := get(transfer.Load(r.d, transfer.SourceOf(whole(t.host.Bytes(), rowBytes), rowBytes), transfer.Options{Codec: string(name), DType: dtype.Float32, Seed: seed}))
			err := try(func() { do(r.resident(tier, t, raw), name) })
			r.free()
			tier.Close()
			must(err)
		}
	}
}

// buddyHits reads resident rows that lie in their slots whole, beside a plain gather of the rows, uncompressed, and beside the same rows in a
// slab, found through a hashmap.
func (r *runner) buddyHits() {
	r.eachResident(false, buddyCodecs, func(x *resident, codec cache.Codec) {
		found := x.hashed()
		kept := len(r.buffers)
		for _, n := range buddyBatches {
			if n = min(n, 6*r.o.Batch); n*x.table.RowBytes > 2*decodedBytes {
				n = 2 * decodedBytes / x.table.RowBytes
			}
			out := r.alloc(int64(n * x.table.RowBytes))
			t := r.batches(func(set uint64) []int64 { return randomRows(n, 0, x.rows, set) })
			plain, hashed := r.launches(t.plain(x.of.mem, out, x.table.RowBytes)), r.launches(found(t, out))
			own := x.result("buddy-hits", codec, n, x.time(t, out))
			bytes := float64(n*x.table.RowBytes) / 1e9
			own.Baseline, own.BaselineValue = "plain gather, uncompressed", bytes/plain
			own.Further = []Further{{"the same rows found through a hashmap", bytes / hashed}}
			own.Detail += fmt.Sprintf("; through a hashmap %.1f µs", hashed*1e6)
			if codec != "rank" { // for which there are no such kernels
				x.table.Early = true
				early := x.time(t, out)
				x.table.Early = false
				own.Further = append(own.Further, Further{"slots copied before their words", bytes / early})
				own.Detail += fmt.Sprintf(", slots copied before their words %.1f µs", early*1e6)
			}
			r.add(own)
			r.freeFrom(kept)
		}
	})
}

// hashed returns a function that makes kernels that find the rows of batches in a hashmap and decode them: the slots are a slab.
func (x *resident) hashed() func(turns, device.Buffer) [sets]device.Kernel {
	layout := hashmap.LayoutFor(x.rows)
	entries := make([]hashmap.Entry, x.rows)
	for row := range x.rows {
		s, compressed, err := x.tier.Stored(row)
		must(err)
		l := slab.Raw(0, x.table.Slot(row))
		if compressed {
			l = slab.Compressed(0, x.table.Slot(row), len(s))
		}
		entries[row] = hashmap.Entry{Key: hashmap.Key(0, row), Location: l}
	}
	m, failed := x.alloc(layout.Bytes()), x.alloc(4)
	build := &kernels.Build{Map: m, Layout: layout, Failed: failed}
	list, scratch := putOn(x.d, asBytes(entries)), get(x.d.Alloc(build.ScratchBytes(x.rows), "benchmark"))
	build.Entries, build.Scratch = list, scratch
	must(x.stream.Launch(build))
	must(x.stream.Synchronize())
	x.d.Free(list)
	x.d.Free(scratch)
	var bad [1]uint32
	must(device.Download(x.d, asBytes(bad[:]), failed))
	if bad[0] != 0 {
		must(fmt.Errorf("hashmap: %d of %d rows do not fit", bad[0], x.rows))
	}
	tier, codec, err := x.tier.Attach(x.d)
	must(err)
	x.runner.buffers = append(x.runner.buffers, codec.Meta)
	return func(t turns, out device.Buffer) (all [sets]device.Kernel) {
		result := get(x.d.AllocHost(kernels.CountersBytes, "benchmark"))
		x.runner.buffers = append(x.runner.buffers, result)
		counters, found := x.put(make([]byte, kernels.CountersBytes)), x.alloc(int64(t.size())*kernels.FoundBytes)
		for i := range all {
			all[i] = &kernels.Find{
				Lookup: kernels.Lookup{Map: m, Layout: layout, Limit: x.rows, Rows: t.rows[i], Out: out, RowBytes: x.table.RowBytes, Found: found, Counters: counters},
				Slabs:  []device.Buffer{x.table.Slots[0]}, Codec: codec, Tier: tier, End: kernels.Ending{Result: result, Batch: 1, Kernels: 1},
			}
		}
		return all
	}
}

// buddyOverflow reads batches some of whose rows have bytes in page-locked memory, beside the slower of what the device's memory and the link
// would take alone: rows that lie in their slots whole, and a plain gather of the pieces in page-locked memory.
func (r *runner) buddyOverflow() {
	r.eachResident(true, []cache.Codec{codecName, "rank"}, func(x *resident, codec cache.Codec) {
		kept := len(r.buffers)
		for _, share := range buddyShares {
			n := r.o.Batch
			out := r.alloc(int64(n * x.table.RowBytes))
			split := n * share / 100
			t := x.overflowing(n, split)
			inside := r.batches(func(set uint64) []int64 {
				rng := rand.New(rand.NewPCG(set, 8))
				all := make([]int64, n)
				for i := range all {
					all[i] = rng.Int64N(x.rows/10)*10 + rawOfTen + rng.Int64N(10-rawOfTen)
				}
				return all
			})
			pieces := r.batches(func(set uint64) []int64 {
				var all []int64
				for _, row := range t.numbers[set] {
					if row%10 < rawOfTen {
						all = append(all, row)
					}
				}
				return all
			})
			over := x.table.Over()
			all, own := x.time(inside, out), x.time(t, out)
			x.table.Prefetch = true
			early := x.time(t, out)
			x.table.Prefetch = false
			link := r.launches(pieces.plain(x.table.Buddy[0], out, over))
			res := x.result("buddy-overflow", codec, n, own)
			res.Baseline, res.BaselineValue = "the slower of its slots and its overflow places alone", float64(n*x.table.RowBytes)/1e9/max(all, link)
			res.Further = []Further{{"with prefetches", float64(n*x.table.RowBytes) / 1e9 / early}}
			res.Detail += fmt.Sprintf("; with prefetches %.1f µs", early*1e6)
			res.Detail += fmt.Sprintf(", %d %% of the rows with %d bytes in host memory; slots alone %.1f µs, overflow places alone %.1f µs (%.1f M/s)",
				share, over, all*1e6, link*1e6, float64(pieces.size())/1e6/link)
			r.add(res)
			r.freeFrom(kept)
		}
	})
}

// overflowing returns batches of n rows of a table that has rows stored raw: so many of them have bytes in buddy memory.
func (x *resident) overflowing(n, over int) turns {
	return x.batches(func(set uint64) []int64 {
		rng := rand.New(rand.NewPCG(set, 7))
		all := make([]int64, n)
		for i := range all {
			all[i] = rng.Int64N(x.rows/10)*10 + rng.Int64N(rawOfTen)
			if i >= over {
				all[i] = rng.Int64N(x.rows/10)*10 + rawOfTen + rng.Int64N(10-rawOfTen)
			}
		}
		rng.Shuffle(n, func(a, b int) { all[a], all[b] = all[b], all[a] })
		return all
	})
}

// buddyPeers reads the batches of buddyOverflow with buddy memory on another GPU, beside the same in page-locked memory. The slots are in the first
// GPU's memory.
func (r *runner) buddyPeers() {
	r.eachResident(true, []cache.Codec{codecName, "rank"}, func(x *resident, codec cache.Codec) {
		host := x.table.Buddy[0]
		peer := get(r.peer.Alloc(host.Size(), "benchmark's buddy memory"))
		defer r.peer.Free(peer)
		must(device.Upload(r.peer, peer, host.Bytes()))
		kept := len(r.buffers)
		for _, share := range buddyShares {
			n := r.o.Batch
			out, t := r.alloc(int64(n*x.table.RowBytes)), x.overflowing(n, n*share/100)
			x.table.Buddy[0] = host
			link := x.time(t, out)
			x.table.Buddy[0] = peer
			res := x.result("buddy-peers", codec, n, x.time(t, out))
			res.Baseline, res.BaselineValue = "the same with buddy memory in page-locked memory", float64(n*x.table.RowBytes)/1e9/link
			res.Detail += fmt.Sprintf(", %d %% of the rows with %d bytes on the other GPU; in page-locked memory %.1f µs", share, x.table.Over(), link*1e6)
			r.add(res)
			r.freeFrom(kept)
		}
	})
}
