package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestCodecs_SomeRowsShrink says that listedTables have rows that shrink, of every codec and element type, and of every codec others. (Of
// single lengths none may shrink: 256 bytes of float64 are too short for ndzip.)
func TestCodecs_SomeRowsShrink(t *testing.T) {
	raw, compressed := map[string]int{}, map[string]int{}
	for _, table := range listed(t) {
		if table.codec == nil {
			continue
		}
		_, hits := encodeSlabs(table.codec, table.data, table.rowBytes, len(table.data)/table.rowBytes, 1)
		of := fmt.Sprintf("%s of %v", table.name, table.dtype)
		compressed[of] += 0
		for _, h := range hits {
			if slab.Location(h.Word).Compressed() {
				compressed[of]++
			} else {
				raw[table.name]++
			}
		}
		raw[table.name] += 0
	}
	for of, n := range compressed {
		if n == 0 {
			t.Errorf("%s: no row is compressed", of)
		}
	}
	for name, n := range raw {
		if n == 0 {
			t.Errorf("%s: no row is raw", name)
		}
	}
}

// TestCodecs_CorruptMisses damages rows in place: the kernels that fetch misses, alone, shared or in one launch with hits, find the same rows
// corrupt as the Go codec, and write nothing outside the output.
func TestCodecs_CorruptMisses(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, table := range listed(t) {
		if table.name == registry.None || table.rowBytes > kernels.MaxShareRow {
			continue
		}
		for _, shared := range []bool{false, true} {
			if short() && shared != (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%v/shared=%v", table, shared), func(t *testing.T) {
				const n = 300 // enough for training to give rank bases
				data := table.listedRows(n)
				misses := make([]kernels.Found, n)
				for i := range misses {
					misses[i] = kernels.Found{Word: uint64(i), Position: uint32(i)}
				}
				both(t, gpu, reason, func(b *bench) uint32 {
					r := rand.New(rand.NewPCG(uint64(table.rowBytes), 17))
					tier, err := transfer.Load(b.d, transfer.SourceOf(data, table.rowBytes), transfer.Options{Codec: table.name, DType: table.dtype, OnHost: true})
					b.check(err)
					defer tier.Close()
					k, out, detach := fetchOf(b, tier, misses)
					defer detach()
					for i := range n {
						row := k.Tier.Mem.Bytes()[int64(i)*k.Tier.Stride:][:table.rowBytes]
						switch r.IntN(3) {
						case 0:
							row[r.IntN(8)] ^= 1 << r.IntN(8)
						case 1:
							for j := range row {
								row[j] = byte(r.Uint32())
							}
						}
					}
					if shared {
						b.launch(&kernels.ShareFetch{Fetch: *k})
					} else {
						b.launch(k)
					}
					out.read(b)
					return b.counters(k.Counters).Corrupt
				}, func(t *testing.T, want, got uint32) {
					if want != got {
						t.Fatalf("%d corrupt rows, want %d", got, want)
					}
				})
			})
		}
	}
}
