package kernels

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

// rowLengths are all short rows and a few long ones.
func rowLengths() []int {
	lengths := []int{127, 128, 129, 511, 512, 513, 1023, 4099, 65537}
	for n := 1; n <= 70; n++ {
		lengths = append(lengths, n)
	}
	return lengths
}

// forEachTable runs a test for every codec and row length.
func forEachTable(t *testing.T, test func(t *testing.T, tb *table, r *rand.Rand)) {
	for _, name := range []string{"none", "ibp4", "ibp8"} {
		for _, rowBytes := range race.Some(rowLengths()) {
			t.Run(fmt.Sprintf("codec=%s/row=%d", name, rowBytes), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 4))
				tb := newTable(t, name, max(20, min(150, 1<<18/rowBytes)), rowBytes, r)
				if rowBytes < 1000 {
					tb.checkShape(t)
				}
				test(t, tb, r)
			})
		}
	}
}

// hitsOf draws a batch of n positions of which about three in four are hits, duplicates among them.
func hitsOf(at []slab.Location, n int, r *rand.Rand) (hits []Found, rows []int) {
	for _, p := range r.Perm(n) {
		if r.IntN(4) != 0 {
			row := r.IntN(len(at))
			hits = append(hits, Found{Word: uint64(at[row]), Position: uint32(p)})
			rows = append(rows, row)
		}
	}
	return hits, rows
}

func buffersOf(g []guarded) (b []device.Buffer) {
	for _, x := range g {
		b = append(b, x.Buffer)
	}
	return b
}

func TestDecode_RowsOfEveryLength(t *testing.T) {
	forEachTable(t, func(t *testing.T, tb *table, r *rand.Rand) {
		n := max(33, min(600, 1<<19/tb.rowBytes))
		for _, canary := range []byte{0x00, 0xff} { // bytes outside the slots must not matter
			slabs, at := tb.slabs(t, 3, canary)
			hits, rows := hitsOf(at, n, r)
			want := make([][]byte, n)
			for i, h := range hits {
				want[h.Position] = tb.rows[rows[i]]
			}
			found, counters := buffers(t, hits, make([]Found, n-len(hits)))
			out := output(t, n, tb.rowBytes)
			run(t, 4, &Decode{Found: found.Buffer, Counters: counters.Buffer, Slabs: buffersOf(slabs), Codec: Codec{Codec: tb.codec}, Out: out.Buffer, RowBytes: tb.rowBytes})
			checkOutput(t, out, tb.rowBytes, want)
			if c := CountersView(counters.Buffer); c.Corrupt != 0 || c.HostBytes != 0 {
				t.Fatalf("counters are %+v", *c)
			}
			found.check(t, "found")
			counters.check(t, "counters")
		}
	})
}

func TestDecode_BatchSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	tb := newTable(t, "ibp4", 200, 64, r)
	slabs, at := tb.slabs(t, 1, 0x11)
	for _, n := range batchSizes {
		for _, workers := range []int{1, 4} {
			hits := make([]Found, n)
			want := make([][]byte, n)
			for i, p := range r.Perm(n) {
				row := r.IntN(len(at))
				hits[i], want[p] = Found{Word: uint64(at[row]), Position: uint32(p)}, tb.rows[row]
			}
			found, counters := buffers(t, hits, nil)
			out := output(t, n, tb.rowBytes)
			run(t, workers, &Decode{Found: found.Buffer, Counters: counters.Buffer, Slabs: buffersOf(slabs), Codec: Codec{Codec: tb.codec}, Out: out.Buffer, RowBytes: tb.rowBytes})
			checkOutput(t, out, tb.rowBytes, want)
		}
	}
}

// TestDecode_CorruptRowsAreCounted damages stored bytes and lengths: the counters tell how many rows do not decode and
// where one of them is, the other rows are right, and the bytes around the slots have no say.
func TestDecode_CorruptRowsAreCounted(t *testing.T) {
	for _, name := range []string{"ibp4", "ibp8"} {
		for _, rowBytes := range []int{9, 40, 64, 257, 1024} {
			r := rand.New(rand.NewPCG(uint64(rowBytes), 6))
			tb := newTable(t, name, 300, rowBytes, r)
			tb.checkShape(t)
			var outcomes [2]Counters
			for pass, canary := range []byte{0x00, 0xff} {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 7))
				slabs, at := tb.slabs(t, 2, canary)
				hits := make([]Found, len(at))
				want := make([][]byte, len(at))
				bad := map[uint32]bool{}
				for row, l := range at {
					p := uint32(len(at) - 1 - row)
					want[p] = tb.rows[row]
					if l.Compressed() && r.IntN(3) == 0 {
						n := len(tb.stored[row])
						stored := slabs[l.Slab()].Bytes()[l.Offset():][:n]
						switch damage := r.IntN(3); {
						case damage == 0 && n > 1: // shorter than written
							n -= 1 + r.IntN(n-1)
						case damage == 1: // longer than written
							n++
						default:
							for i := range stored {
								stored[i] = byte(r.Uint32())
							}
						}
						l = slab.Compressed(l.Slab(), l.Offset(), n)
						got := make([]byte, rowBytes)
						stored = slabs[l.Slab()].Bytes()[l.Offset():][:n:n]
						if m, err := tb.codec.Decode(got, stored); err != nil || m != n {
							bad[p] = true
						} else {
							want[p] = got
						}
					}
					hits[row] = Found{Word: uint64(l), Position: p}
				}
				found, counters := buffers(t, hits, nil)
				out := output(t, len(hits), rowBytes)
				run(t, 4, &Decode{Found: found.Buffer, Counters: counters.Buffer, Slabs: buffersOf(slabs), Codec: Codec{Codec: tb.codec}, Out: out.Buffer, RowBytes: rowBytes})
				for p := range bad {
					want[p] = bytes.Clone(out.Bytes()[int(p)*rowBytes:][:rowBytes]) // undefined
				}
				checkOutput(t, out, rowBytes, want)
				count := CountersView(counters.Buffer)
				if int(count.Corrupt) != len(bad) || len(bad) == 0 || !bad[count.CorruptPosition] {
					t.Errorf("%s rows of %d bytes: %d corrupt rows, position %d, want %d", name, rowBytes, count.Corrupt, count.CorruptPosition, len(bad))
				}
				counters.check(t, "counters")
				count.CorruptPosition = 0
				outcomes[pass] = *count
			}
			if outcomes[0] != outcomes[1] {
				t.Errorf("%s rows of %d bytes: bytes outside the slots change the outcome: %+v, %+v", name, rowBytes, outcomes[0], outcomes[1])
			}
		}
	}
}

// TestDecode_CompressedWithoutCodec: a location that says compressed in a table that has no codec is corrupt.
func TestDecode_CompressedWithoutCodec(t *testing.T) {
	mem := alloc(t, 16+slab.TailSlack, 1)
	found, counters := buffers(t, []Found{{Word: uint64(slab.Compressed(0, 0, 7))}}, []Found{{}})
	out := output(t, 2, 8)
	run(t, 1, &Decode{Found: found.Buffer, Counters: counters.Buffer, Slabs: []device.Buffer{mem.Buffer}, Out: out.Buffer, RowBytes: 8})
	checkOutput(t, out, 8, make([][]byte, 2))
	if c := CountersView(counters.Buffer); c.Corrupt != 1 || c.CorruptPosition != 0 {
		t.Errorf("counters are %+v", *c)
	}
}

// TestDecode_BesideFetch runs both halves of a batch at once, as a Gather does, on the same counters and output.
func TestDecode_BesideFetch(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	tb := newTable(t, "ibp8", 400, 72, r)
	slabs, at := tb.slabs(t, 2, 0x22)
	tier, _ := tb.tier(t, false, 0x33)
	const n = 5000
	hits, rows := hitsOf(at, n, r)
	want := make([][]byte, n)
	for i, h := range hits {
		want[h.Position] = tb.rows[rows[i]]
	}
	var misses []Found
	moved := uint64(0)
	for p, w := range want {
		if w == nil {
			row := r.IntN(len(at))
			want[p] = tb.rows[row]
			misses = append(misses, Found{Word: uint64(row), Position: uint32(p)})
			moved += uint64(len(tb.stored[row]))
		}
	}
	found, counters := buffers(t, hits, misses)
	ordered, buckets, out := alloc(t, found.Size(), 0), alloc(t, OrderBytes, 0), output(t, n, tb.rowBytes)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t, 2, &Order{Found: found.Buffer, Counters: counters.Buffer, Ordered: ordered.Buffer, Buckets: buckets.Buffer, Tier: tier},
			&Fetch{Misses: ordered.Buffer, Counters: counters.Buffer, Tier: tier, Codec: Codec{Codec: tb.codec}, Out: out.Buffer})
	}()
	run(t, 2, &Decode{Found: found.Buffer, Counters: counters.Buffer, Slabs: buffersOf(slabs), Codec: Codec{Codec: tb.codec}, Out: out.Buffer, RowBytes: tb.rowBytes})
	<-done
	checkOutput(t, out, tb.rowBytes, want)
	if c := CountersView(counters.Buffer); c.Corrupt != 0 || c.HostBytes != moved {
		t.Errorf("counters are %+v, want %d host bytes", *c, moved)
	}
}
