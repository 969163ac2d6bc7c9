package kernels

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// resident lays a table's rows out for a number of devices. Every fifth row lies in an overlay instead, slab devices of slabs, and its own
// two places hold the canary, as do all bytes that belong to no row.
func (tb *table) resident(t testing.TB, target, devices int, canary byte) (r *Resident, slabs []device.Buffer, guards []guarded) {
	t.Helper()
	layout, err := buddy.NewLayout(target, tb.rowBytes, int64(len(tb.rows)), devices)
	if err != nil {
		t.Fatal(err)
	}
	r = &Resident{Layout: layout}
	take := func(n int64) device.Buffer {
		g := alloc(t, n, canary)
		guards = append(guards, g)
		return g.Buffer
	}
	for d := range devices {
		r.Slots[d], r.Words[d] = take(layout.SlotsBytes(d)), take(layout.WordsBytes(d))
		if n := layout.BuddyBytes(d); n > 0 {
			r.Buddy[d] = take(n)
		}
	}
	slabs = make([]device.Buffer, devices, devices+1)
	id := min(devices, slab.MaxSlabs-1)
	slabs = append(slabs[:id], take(int64(len(tb.rows)*(tb.rowBytes+slab.Align))+slab.TailSlack))
	at := int64(0)
	for i, stored := range tb.stored {
		row := int64(i)
		d, word := layout.Device(row), buddy.Home(len(stored), tb.compressed(i))
		if i%5 == 4 {
			copy(slabs[id].Bytes()[at:], stored)
			l := slab.Raw(id, at)
			if tb.compressed(i) {
				l = slab.Compressed(id, at, len(stored))
			}
			word = buddy.At(l)
			at += int64(slab.SlotBytes(len(stored)))
		} else {
			slot, overflow := layout.Split(stored)
			copy(r.Slots[d].Bytes()[layout.Slot(row):], slot)
			if len(overflow) > 0 {
				copy(r.Buddy[d].Bytes()[layout.Overflow(row):], overflow)
			}
		}
		view[uint64](r.Words[d])[layout.Local(row)] = uint64(word)
	}
	return r, slabs, guards
}

// targets are the shortest and the longest target of a row length, and some between.
func targets(rowBytes int) []int {
	most := buddy.MaxTarget(rowBytes)
	all := []int{buddy.MinTarget}
	for _, n := range []int{rowBytes / 3, rowBytes / 2, rowBytes - 1, most} {
		if n = n / 16 * 16; n > all[len(all)-1] {
			all = append(all, n)
		}
	}
	return all
}

// Rows of a resident table come back as they are, with every codec and target, from one to eight devices, and are counted.
func TestServe_ReadsResidentTables(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 1))
	for _, name := range append(registry.Concrete(), registry.None) {
		for i, rowBytes := range race.Some([]int{4, 12, 64, 100, 256, 1028, 8192}) {
			if _, err := registry.Train(name, make([]byte, 8*rowBytes), rowBytes, gputest.DType(rowBytes)); err != nil {
				continue
			}
			tb := newTable(t, name, 300, rowBytes, r)
			for j, target := range targets(rowBytes) {
				devices := 1 + (i+j)%slab.MaxSlabs
				t.Run(fmt.Sprintf("%s/%d/target=%d/devices=%d", name, rowBytes, target, devices), func(t *testing.T) {
					res, slabs, guards := tb.resident(t, target, devices, byte(r.Uint32()))
					n := batchSizes[r.IntN(len(batchSizes))]
					rows, want := make([]int64, n), Counters{}
					for i := range rows {
						rows[i] = r.Int64N(int64(len(tb.rows)) + 3)
					}
					if n > 3 {
						rows[n/2] = -1
					}
					peers := uint8(r.Uint32())
					for i, row := range rows {
						if uint64(row) >= uint64(len(tb.rows)) {
							if want.OutOfRange++; want.OutOfRange == 1 {
								want.NotFirst = ^uint32(i)
							}
							continue
						}
						want.Hits++
						place := res.Device(row)
						if row%5 == 4 {
							place = len(slabs) - 1
						} else if over := len(tb.stored[row]) - target; over > 0 {
							want.Reasons[slab.Oversize]++
							want.HostBytes += uint64(over)
						}
						want.Peers += uint32(peers) >> place & 1
					}
					out, result := alloc(t, int64(n*rowBytes), 0xee), newCounters(t)
					run(t, 3, &Serve{
						Lookup: Lookup{Limit: int64(len(tb.rows)), Rows: numbers(rows), Peers: peers, Out: out.Buffer, RowBytes: rowBytes, Counters: newCounters(t).Buffer},
						Slabs:  slabs, Codec: Codec{Codec: tb.codec}, Result: result.Buffer, Batch: 7, Resident: res,
					})
					for i, row := range rows {
						plain := make([]byte, rowBytes)
						if uint64(row) < uint64(len(tb.rows)) {
							plain = tb.rows[row]
						}
						if !bytes.Equal(out.Bytes()[i*rowBytes:][:rowBytes], plain) {
							t.Fatalf("position %d, row %d: wrong bytes", i, row)
						}
					}
					want.Batch = 7
					if got := *CountersView(result.Buffer); got != want {
						t.Errorf("counted %+v, want %+v", got, want)
					}
					out.check(t, "output")
					for _, g := range guards {
						g.check(t, "memory")
					}
				})
			}
		}
	}
}

// Words that no encoder writes, and stored bytes that do not decode, count as corrupt rows, and the others are served.
func TestServe_CountsCorruptResidentRows(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 2))
	tb := newTable(t, "ibp", 50, 256, r)
	for name, word := range map[string]buddy.Word{
		"longer than the row": buddy.Compressed(256), "far longer": buddy.Compressed(slab.MaxStored), "too short": buddy.Compressed(1),
	} {
		res, slabs, _ := tb.resident(t, 64, 1, 0)
		rows := []int64{0, 1, 2}
		view[uint64](res.Words[0])[1] = uint64(word)
		out, result := alloc(t, 3*256, 0xee), newCounters(t)
		run(t, 1, &Serve{
			Lookup: Lookup{Limit: 50, Rows: numbers(rows), Out: out.Buffer, RowBytes: 256, Counters: newCounters(t).Buffer},
			Slabs:  slabs, Codec: Codec{Codec: tb.codec}, Result: result.Buffer, Resident: res,
		})
		if got := CountersView(result.Buffer); got.Corrupt != 1 || got.CorruptPosition != 1 || got.Hits != 3 {
			t.Errorf("%s: %+v", name, got)
		}
		if !bytes.Equal(out.Bytes()[:256], tb.rows[0]) || !bytes.Equal(out.Bytes()[512:], tb.rows[2]) {
			t.Errorf("%s: wrong rows", name)
		}
	}
}

// numbers returns the row numbers of a batch.
func numbers(rows []int64) device.Buffer {
	words := make([]uint64, len(rows))
	for i, r := range rows {
		words[i] = uint64(r)
	}
	return wordBuffer(words)
}
