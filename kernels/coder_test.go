package kernels_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// coderCase is a codec that has a coder (coder.h), for elements of a type.
type coderCase struct {
	codec string
	of    dtype.Type
}

func (c coderCase) String() string { return fmt.Sprintf("%s/%v", c.codec, c.of) }

var coderCases = []coderCase{
	{"sleek", dtype.Float16}, {"sleek", dtype.BFloat16}, {"sleek", dtype.Float32}, {"sleek", dtype.Float64},
	{"sleek-eb:0.001", dtype.Float16}, {"sleek-eb:0.001", dtype.BFloat16}, {"sleek-eb:0.001", dtype.Float32}, {"sleek-eb:0.001", dtype.Float64},
	{"ndzip", dtype.Float16}, {"ndzip", dtype.Float32}, {"ndzip", dtype.Float64},
}

// coderLengths are the row lengths that coders are tested with: around quads, groups, tiles and long rows.
func coderLengths() []int {
	if short() {
		return race.Some([]int{2, 8, 62, 64, 130, 256, 400, 514, 1000, 1024, 2052, 4096, 8192, 20_006})
	}
	return append(rowLengths(), 30, 32, 34, 62, 66, 126, 130, 254, 258, 510, 514, 1022, 1026, 1536, 2056, 8198, 20_006)
}

func (c coderCase) train(t testing.TB, data []byte, rowBytes int) codec.Codec {
	t.Helper()
	trained, err := registry.Train(c.codec, data, rowBytes, c.of)
	if err != nil {
		t.Fatal(err)
	}
	return trained
}

// TestCoder_DecodesHits holds hits that GPUs decode against the Go codec's.
func TestCoder_DecodesHits(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for i, rowBytes := range coderLengths() {
			t.Run(fmt.Sprintf("%v/row=%d", c, rowBytes), func(t *testing.T) {
				n := batchFor(rowBytes)
				distinct := min(n, 100)
				data := gputest.FloatRows(c.of, distinct, rowBytes, uint64(i))
				trained := c.train(t, data, rowBytes)
				slabs, hits := encodeSlabs(trained, data, rowBytes, n, 2)
				skew := int64([]int{0, 0, 4, 8, 1}[i%5])
				both(t, gpu, reason, func(b *bench) decodeResult {
					k, out := decodeOf(b, trained, slabs, hits, rowBytes, skew)
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					equalDecode(t, want, got)
					if got.count.Corrupt != 0 {
						t.Fatalf("%d corrupt rows", got.count.Corrupt)
					}
				})
			})
		}
	}
}

// TestCoder_CorruptHits flips bits of stored rows and gives wrong lengths: the same rows must be found corrupt, and nothing outside the
// output written. The emulated GPU and the sanitizer see to reads.
func TestCoder_CorruptHits(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for _, rowBytes := range race.Some([]int{64, 256, 512, 1000, 1024, 2408, 4096, 8192, 20_006}) {
			t.Run(fmt.Sprintf("%v/row=%d", c, rowBytes), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 9))
				n := min(600, batchFor(rowBytes))
				data := gputest.FloatRows(c.of, n, rowBytes, 5)
				trained := c.train(t, data, rowBytes)
				slabs, hits := encodeSlabs(trained, data, rowBytes, n, 1)
				end := int64(len(slabs[0]) - slab.TailSlack)
				for i := range hits {
					l := slab.Location(hits[i].Word)
					if !l.Compressed() {
						continue
					}
					stored := l.Stored(rowBytes)
					switch r.IntN(4) {
					case 0: // a bit of what says how long the row is
						slabs[0][l.Offset()+r.Int64N(int64(min(stored, 8)))] ^= 1 << r.IntN(8)
					case 1:
						stored = 1 + r.IntN(min(rowBytes+rowBytes/8, int(end-l.Offset())))
						hits[i].Word = uint64(slab.Compressed(0, l.Offset(), stored))
					case 2:
						for j := range stored {
							slabs[0][l.Offset()+int64(j)] = byte(r.Uint32())
						}
					}
				}
				both(t, gpu, reason, func(b *bench) uint32 {
					k, out := decodeOf(b, trained, slabs, hits, rowBytes, 0)
					b.launch(k)
					out.read(b)
					return b.counters(k.Counters).Corrupt
				}, func(t *testing.T, want, got uint32) {
					if want != got {
						t.Fatalf("%d corrupt rows, want %d", got, want)
					}
					t.Logf("%d of %d rows corrupt", got, n)
				})
			})
		}
	}
}

// TestCoder_FetchesMisses loads a host tier, by the GPU where it encodes, and reads misses from it, in place and packed.
func TestCoder_FetchesMisses(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for i, rowBytes := range coderLengths() {
			mode := []transfer.Mode{transfer.InPlace, transfer.Packed}[i%2]
			t.Run(fmt.Sprintf("%v/row=%d/%v", c, rowBytes, mode), func(t *testing.T) {
				n := batchFor(rowBytes)
				rows := min(n, 100)
				data := gputest.FloatRows(c.of, rows, rowBytes, uint64(i))
				misses := make([]kernels.Found, n)
				for i := range misses {
					misses[i] = kernels.Found{Word: uint64(i * 7919 % rows), Position: uint32(n - 1 - i)}
				}
				both(t, gpu, reason, func(b *bench) decodeResult {
					tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: c.codec, DType: c.of, Mode: mode, Seed: 1})
					b.check(err)
					defer tier.Close()
					k, out, detach := fetchOf(b, tier, misses)
					defer detach()
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					equalDecode(t, want, got)
					if got.count.Corrupt != 0 {
						t.Fatalf("%d corrupt rows", got.count.Corrupt)
					}
				})
			})
		}
	}
}

// TestCoder_CorruptMisses damages what stored rows in place begin with: they grow, shrink or become no row.
func TestCoder_CorruptMisses(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for _, rowBytes := range race.Some([]int{64, 256, 1000, 4096, 20_000}) {
			t.Run(fmt.Sprintf("%v/row=%d", c, rowBytes), func(t *testing.T) {
				n := min(300, batchFor(rowBytes))
				data := gputest.FloatRows(c.of, n, rowBytes, 3)
				misses := make([]kernels.Found, n)
				for i := range misses {
					misses[i] = kernels.Found{Word: uint64(i), Position: uint32(i)}
				}
				both(t, gpu, reason, func(b *bench) kernels.Counters {
					tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: c.codec, DType: c.of, Seed: 1})
					b.check(err)
					defer tier.Close()
					k, out, detach := fetchOf(b, tier, misses)
					defer detach()
					r := rand.New(rand.NewPCG(3, 9))
					mem := k.Tier.Mem.Bytes()
					for i := range n / 2 {
						at := mem[int64(2*i)*k.Tier.Stride:]
						at[r.IntN(min(rowBytes, 8))] ^= 1 << r.IntN(8)
					}
					b.launch(k)
					out.read(b)
					count := b.counters(k.Counters)
					count.CorruptPosition = 0
					return count
				}, func(t *testing.T, want, got kernels.Counters) {
					if want != got {
						t.Fatalf("counters %+v, want %+v", got, want)
					}
				})
			})
		}
	}
}

// TestCoder_ServesSmallBatches has hits and misses in one launch.
func TestCoder_ServesSmallBatches(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for i, rowBytes := range coderLengths() {
			if rowBytes >= abi.LongRow {
				continue
			}
			mode := []transfer.Mode{transfer.InPlace, transfer.Packed}[i%2]
			t.Run(fmt.Sprintf("%v/row=%d/%v", c, rowBytes, mode), func(t *testing.T) {
				n := min(600, batchFor(rowBytes)) - i%3
				rows := max(2, min(n, 101))
				in := newServeInputOf(t, gputest.FloatRows(c.of, rows, rowBytes, uint64(i)), rowBytes, n, c.codec, c.of, mode, .5, rand.New(rand.NewPCG(uint64(rowBytes), 3)))
				in.skew = int64([]int{0, 0, 4, 8, 1}[i%5])
				both(t, gpu, reason, func(b *bench) serveResult {
					return in.serve(b, func(kernels.HostRows) {})
				}, func(t *testing.T, want, got serveResult) {
					if want.count != got.count || got.count.Corrupt != 0 {
						t.Fatalf("counters %+v, want %+v", got.count, want.count)
					}
					if !bytes.Equal(want.out, got.out) {
						t.Fatal("output differs")
					}
				})
			})
		}
	}
}

// TestCoder_EncodesLikeGo holds rows that GPUs encode against the Go encoder's, byte for byte.
func TestCoder_EncodesLikeGo(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range coderCases {
		for i, rowBytes := range coderLengths() {
			data := gputest.FloatRows(c.of, min(300, batchFor(rowBytes)), rowBytes, uint64(i))
			trained := c.train(t, data, rowBytes)
			if on, ok := trained.(codec.OnDevice); !ok || !kernels.Encodes(on.DeviceForm(), rowBytes) {
				continue
			}
			t.Run(fmt.Sprintf("%v/row=%d", c, rowBytes), func(t *testing.T) {
				n, stride := len(data)/rowBytes, (rowBytes+3)&^3+4*(i%2)
				type result struct {
					rows, bits, lengths []byte
					totals              kernels.EncodeTotals
				}
				both(t, gpu, reason, func(b *bench) result {
					source := bytes.Repeat([]byte{0xa5}, n*stride+slab.TailSlack)
					for r := range n {
						copy(source[r*stride:], data[r*rowBytes:][:rowBytes])
					}
					mem := b.put(source)
					attached, err := kernels.AttachCodec(b.d, trained)
					b.check(err)
					defer b.d.Free(attached.Meta)
					k := kernels.Encode{
						Rows: mem, Stride: int64(stride), Count: int64(n), Codec: attached, Bits: b.alloc(int64(n+63) / 64 * 8), Lengths: b.alloc(int64(n) * 4),
						Totals: b.alloc(abi.EncodeTotalsBytes), Scratch: b.alloc(kernels.EncodeScratchBytes(rowBytes, int64(n))),
					}
					b.launch(&k)
					return result{b.get(mem), b.get(k.Bits), b.get(k.Lengths), *kernels.EncodeTotalsView(device.HostBuffer(b.get(k.Totals)))}
				}, func(t *testing.T, want, got result) {
					if !bytes.Equal(want.lengths, got.lengths) {
						t.Fatal("lengths differ")
					}
					if !bytes.Equal(want.bits, got.bits) {
						t.Fatal("bits differ")
					}
					if want.totals != got.totals {
						t.Fatalf("totals %+v, want %+v", got.totals, want.totals)
					}
					if !bytes.Equal(want.rows, got.rows) {
						t.Fatal("stored rows differ")
					}
				})
			})
		}
	}
}
