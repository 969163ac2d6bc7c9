package kernels

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/slab"
)

// missesFrom draws a batch of n positions of which about three in four are misses, duplicates among them.
func missesFrom(rows, n int, r *rand.Rand) (misses []Found) {
	for _, p := range r.Perm(n) {
		if r.IntN(4) != 0 {
			misses = append(misses, Found{Word: uint64(r.IntN(rows)), Position: uint32(p)})
		}
	}
	return misses
}

// missBuffers makes the memory of a batch of n rows with the misses at the back of the list, as Lookup leaves them, or at
// its front, as Order does.
func missBuffers(t testing.TB, n int, misses []Found, atBack bool) (list, counters guarded) {
	t.Helper()
	rest := make([]Found, n-len(misses))
	if atBack {
		return buffers(t, rest, misses)
	}
	list, counters = buffers(t, misses, rest)
	c := CountersView(counters.Buffer)
	c.Hits, c.Misses = c.Misses, c.Hits
	return list, counters
}

func TestFetch_RowsOfEveryLength(t *testing.T) {
	forEachTable(t, func(t *testing.T, tb *table, r *rand.Rand) {
		n := max(33, min(600, 1<<19/tb.rowBytes))
		for _, packed := range []bool{false, true} {
			for _, canary := range []byte{0x00, 0xff} { // bytes outside the rows, stale ones too, must not matter
				tier, mem := tb.tier(t, packed, canary)
				before := bytes.Clone(mem.all)
				misses := missesFrom(len(tb.rows), n, r)
				want := make([][]byte, n)
				moved := uint64(0)
				for _, m := range misses {
					want[m.Position] = tb.rows[m.Word]
					moved += uint64(len(tb.stored[m.Word]))
				}
				for _, atBack := range []bool{false, true} {
					list, counters := missBuffers(t, n, misses, atBack)
					out := output(t, n, tb.rowBytes)
					run(t, 4, &Fetch{Misses: list.Buffer, AtBack: atBack, Counters: counters.Buffer, Tier: tier, Codec: Codec{Codec: tb.codec}, Out: out.Buffer})
					checkOutput(t, out, tb.rowBytes, want)
					if c := CountersView(counters.Buffer); c.Corrupt != 0 || c.HostBytes != moved {
						t.Fatalf("packed %v, at back %v: counters are %+v, want %d host bytes", packed, atBack, *c, moved)
					}
					list.check(t, "misses")
					counters.check(t, "counters")
				}
				if !bytes.Equal(mem.all, before) {
					t.Fatalf("packed %v: the host tier was written", packed)
				}
			}
		}
	})
}

func TestFetch_BatchSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	tb := newTable(t, "ibp8", 200, 70, r)
	for _, packed := range []bool{false, true} {
		tier, _ := tb.tier(t, packed, 0x44)
		for _, n := range batchSizes { // in order, GPUs look for rows that are asked for twice from 7 misses on
			misses := make([]Found, n)
			want := make([][]byte, n)
			moved := uint64(0)
			for i, p := range r.Perm(n) {
				row := r.IntN(len(tb.rows))
				misses[i], want[p] = Found{Word: uint64(row), Position: uint32(p)}, tb.rows[row]
				moved += uint64(len(tb.stored[row]))
			}
			for _, atBack := range []bool{false, true} {
				list, counters := missBuffers(t, n, misses, atBack)
				out := output(t, n, tb.rowBytes)
				run(t, 1+n%4, &Fetch{
					Misses: list.Buffer, AtBack: atBack, Counters: counters.Buffer, Tier: tier, Codec: Codec{Codec: tb.codec}, Out: out.Buffer,
				})
				checkOutput(t, out, tb.rowBytes, want)
				if c := CountersView(counters.Buffer); c.HostBytes != moved {
					t.Errorf("packed %v, at back %v, batch of %d: %d host bytes, want %d", packed, atBack, n, c.HostBytes, moved)
				}
			}
		}
	}
}

// TestFetch_CorruptRowsAreCounted is TestDecode_CorruptRowsAreCounted for the host tier. In place, the stale bytes that
// follow a row count as the row's.
func TestFetch_CorruptRowsAreCounted(t *testing.T) {
	for _, name := range []string{"ibp4", "ibp8"} {
		for _, rowBytes := range []int{9, 40, 64, 257, 1024} {
			for _, packed := range []bool{false, true} {
				t.Run(fmt.Sprintf("codec=%s/row=%d/packed=%v", name, rowBytes, packed), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(rowBytes), 10))
					tb := newTable(t, name, 300, rowBytes, r)
					tb.checkShape(t)
					tier, _ := tb.tier(t, packed, 0x55)
					var misses []Found
					rows := uint32(len(tb.rows))
					want := make([][]byte, 2*rows)
					bad := map[uint32]bool{}
					for row := range tb.rows { // each is asked for twice
						p := rows - 1 - uint32(row)
						misses = append(misses, Found{Word: uint64(row), Position: p}, Found{Word: uint64(row), Position: rows + p})
						want[p], want[rows+p] = tb.rows[row], tb.rows[row]
						if !tb.compressed(row) || r.IntN(3) != 0 {
							continue
						}
						if packed && r.IntN(2) == 0 { // the index is wrong
							l := slab.Location(view[uint64](tier.Index)[row])
							view[uint64](tier.Index)[row] = uint64(slab.Compressed(0, l.Offset(), l.Stored(rowBytes)+1-2*r.IntN(2)))
						} else {
							stored, _ := tier.Stored(int64(row))
							for i := range stored {
								stored[i] = byte(r.Uint32())
							}
							if r.IntN(4) == 0 { // no chunk participates: longer than the row
								clear(stored)
							}
						}
						got := make([]byte, rowBytes)
						stored, _ := tier.Stored(int64(row))
						if m, err := tb.codec.Decode(got, bytes.Clone(stored)); err != nil || packed && m != len(stored) {
							bad[p], bad[rows+p] = true, true
						} else {
							want[p], want[rows+p] = got, got
						}
					}
					atBack := r.IntN(2) == 0
					list, counters := missBuffers(t, len(misses), misses, atBack)
					out := output(t, len(misses), rowBytes)
					run(t, 4, &Fetch{
						Misses: list.Buffer, AtBack: atBack, Counters: counters.Buffer, Tier: tier, Codec: Codec{Codec: tb.codec}, Out: out.Buffer,
					})
					for p := range bad {
						want[p] = bytes.Clone(out.Bytes()[int(p)*rowBytes:][:rowBytes]) // undefined
					}
					checkOutput(t, out, rowBytes, want)
					count := CountersView(counters.Buffer)
					if int(count.Corrupt) != len(bad) || len(bad) == 0 || !bad[count.CorruptPosition] {
						t.Errorf("%d corrupt rows, position %d, want %d", count.Corrupt, count.CorruptPosition, len(bad))
					}
					counters.check(t, "counters")
				})
			}
		}
	}
}
