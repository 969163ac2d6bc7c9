package kernels_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// listedCodecs are the names of all codecs of the registry: one that is added there is tested by what follows. Codecs with an option
// are error-bounded ones.
func listedCodecs() (names []string) {
	for _, usage := range registry.Usage() {
		name, _, option := strings.Cut(usage, ":")
		switch {
		case option:
			names = append(names, name+":0.001")
		case name != registry.Auto:
			names = append(names, name)
		}
	}
	return names
}

// listedTables are the codecs with every element type that they serve, each with some of the row lengths: of words, pairs and quads, those
// of one warp and of several, and long rows.
func listedTables() (tables []coded) {
	all := []int{256, 300, 516, 264, 1032, 4096, 8208}
	for _, name := range listedCodecs() {
		for i, of := range []dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Float16, dtype.Int8} {
			lengths := all
			if short() {
				lengths = []int{all[i%len(all)], all[(i+2)%len(all)]}
			}
			for _, rowBytes := range race.Some(lengths) {
				table := coded{name, of, rowBytes}
				if _, err := registry.Train(name, table.listedRows(8), rowBytes, of); !errors.Is(err, codec.ErrDType) {
					tables = append(tables, table)
				}
			}
		}
	}
	return tables
}

// listedRows are rows of which every codec makes some shorter, and some not.
func (c coded) listedRows(n int) []byte {
	if c.dtype == dtype.Int8 {
		return c.rows(n)
	}
	return gputest.FloatRows(c.dtype, n, c.rowBytes, uint64(c.rowBytes))
}

// servedRow returns the row that the codec restores from what it stores of a row: another one where the codec loses bits.
func servedRow(t *testing.T, c codec.Codec, row []byte) []byte {
	if c == nil {
		return row
	}
	dst, back := make([]byte, c.EncodeBound()), make([]byte, len(row))
	n, err := c.Encode(dst, row)
	if errors.Is(err, codec.ErrIncompressible) {
		return row
	}
	if err == nil {
		_, err = c.Decode(back, dst[:n])
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// TestCodecs_EveryPath has every codec's rows read in every way: from slabs, from those of another device, from the host tier, by misses
// alone or by the kernel that shares them, in one launch, and looked up on the way. The batches are so long, and the blocks so few, that each
// tile has many rows.
func TestCodecs_EveryPath(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, table := range listedTables() {
		t.Run(table.String(), func(t *testing.T) { testEveryPath(t, gpu, reason, i, table) })
	}
}

// testEveryPath is TestCodecs_EveryPath for table i.
func testEveryPath(t *testing.T, gpu device.Device, reason error, i int, table coded) {
	rowBytes := table.rowBytes
	const distinct = 60
	n := min(1003, 400_000/rowBytes)
	if !short() {
		n = min(20_003, 4_000_000/rowBytes)
	}
	data := table.listedRows(distinct)
	run := func(path string, read func(b *bench) decodeResult, sources func(c codec.Codec) [][]byte) {
		t.Run(path, func(t *testing.T) {
			both(t, gpu, reason, read, func(t *testing.T, want, got decodeResult) {
				equalDecode(t, want, got)
				if got.count.Corrupt != 0 {
					t.Fatalf("%d corrupt rows", got.count.Corrupt)
				}
				c, err := registry.Train(table.name, data, rowBytes, table.dtype)
				if err != nil {
					t.Fatal(err)
				}
				for i, row := range sources(c) {
					if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], row) {
						t.Fatalf("row at position %d differs from its source", i)
					}
				}
			})
		})
	}
	served := func(c codec.Codec) (rows [][]byte) {
		for r := range distinct {
			rows = append(rows, servedRow(t, c, data[r*rowBytes:][:rowBytes]))
		}
		return rows
	}
	// Hits, in two slabs.
	for _, peers := range []uint8{0, 1 << 1} {
		c := table.trained(t, data)
		slabs, hits := encodeSlabs(c, data, rowBytes, n, 2)
		run([]string{"own slab", "peer's slab"}[min(peers, 1)], func(b *bench) decodeResult {
			k, out := decodeOf(b, c, slabs, hits, rowBytes, int64([]int{0, 0, 4, 8, 1}[i%5]))
			k.Peers, k.Leave = peers, 100
			b.launch(k)
			return decodeResult{b.counters(k.Counters), out.read(b)}
		}, func(c codec.Codec) (rows [][]byte) {
			all := served(c)
			for i := range hits {
				rows = append(rows, all[i*7919%distinct])
			}
			return rows
		})
	}
	// Misses.
	misses := make([]kernels.Found, n)
	for i := range misses {
		misses[i] = kernels.Found{Word: uint64(i * 31 / 4 % distinct), Position: uint32(n - 1 - i)}
	}
	missed := func(c codec.Codec) [][]byte {
		rows, all := make([][]byte, n), served(c)
		for _, m := range misses {
			rows[m.Position] = all[m.Word]
		}
		return rows
	}
	for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
		for _, path := range []string{"ordered", "at the back", "shared"} {
			if path == "shared" && rowBytes > kernels.MaxShareRow {
				continue
			}
			run(fmt.Sprintf("misses/%v/%s", mode, path), func(b *bench) decodeResult {
				tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{
					Codec: table.name, DType: table.dtype, Mode: mode, OnHost: true,
				})
				b.check(err)
				defer tier.Close()
				k, out, detach := fetchOf(b, tier, misses)
				defer detach()
				k.AtBack = path == "at the back"
				if path == "shared" {
					b.launch(&kernels.ShareFetch{Fetch: *k})
				} else {
					b.launch(k)
				}
				return decodeResult{b.counters(k.Counters), out.read(b)}
			}, missed)
		}
	}
	// Hits and misses of one batch.
	if rowBytes >= 8192 {
		return
	}
	in := newServeInputOf(t, data, rowBytes, n, table.name, table.dtype, transfer.InPlace, .5, rand.New(rand.NewPCG(uint64(i), 1)))
	batch := func(c codec.Codec) (rows [][]byte) {
		all := served(c)
		for _, row := range in.batch {
			if uint64(row) < distinct {
				rows = append(rows, all[row])
			} else {
				rows = append(rows, make([]byte, rowBytes))
			}
		}
		return rows
	}
	for _, find := range []bool{false, true} {
		run(map[bool]string{false: "one launch", true: "find"}[find], func(b *bench) decodeResult {
			in := *in
			in.find, in.oneDevice, in.skew = find, find, int64([]int{0, 4, 8}[i%3])
			r := in.serve(b, func(kernels.HostRows) {})
			return decodeResult{r.count, r.out}
		}, batch)
	}
}

// trained is train on all rows, nil for rows as they are.
func (c coded) trained(t testing.TB, data []byte) codec.Codec {
	k, err := registry.Train(c.name, data, c.rowBytes, c.dtype)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestCodecs_SomeRowsShrink says that the tables of TestCodecs_EveryPath have rows that shrink, of every codec and element type, and of
// every codec others. (Of single lengths none may shrink: 256 bytes of float64 are too short for ndzip.)
func TestCodecs_SomeRowsShrink(t *testing.T) {
	raw, compressed := map[string]int{}, map[string]int{}
	for _, table := range listedTables() {
		data := table.listedRows(60)
		c := table.trained(t, data)
		if c == nil {
			continue
		}
		_, hits := encodeSlabs(c, data, table.rowBytes, 60, 1)
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
	for _, table := range listedTables() {
		if table.name == registry.None || table.rowBytes > kernels.MaxShareRow {
			continue
		}
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/shared=%v", table, shared), func(t *testing.T) {
				const n = 200
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
