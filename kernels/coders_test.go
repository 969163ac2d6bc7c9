package kernels_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/parts"
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

// A coded is a table whose rows are stored by a codec with kernels of its own: codecs that look at the elements' type.
type coded struct {
	name     string
	dtype    dtype.Type
	rowBytes int
}

// codedTables are codecs and element types with the row lengths at which they change: around tiles, segments, regions and lengths
// in front, not all of them whole elements, and lengths that are decoded where they lie.
func codedTables() (tables []coded) {
	lengths := []int{40, 130, 255, 256, 513, 1030, 4096, 8193}
	if !short() {
		lengths = append(lengths, 16, 62, 64, 126, 128, 136, 250, 260, 384, 508, 512, 516, 520, 1022, 1024, 1032, 1500, 2050, 3333, 8184, 8192, 20_000, 65_540, slab.MaxRowBytes)
	}
	for _, c := range []coded{{"rank", dtype.Float32, 0}, {"rank", dtype.BFloat16, 0}, {"rank", dtype.Float64, 0}, {"rank", dtype.Float16, 0},
		{"ibp2", dtype.BFloat16, 0}, {"ibpc", dtype.Float32, 0}, {"ibpc", dtype.BFloat16, 0}, {"ibpc", dtype.Float64, 0},
		{"zipnn", dtype.Float32, 0}, {"zipnn", dtype.BFloat16, 0}, {"zipnn", dtype.Float64, 0}, {"zipnn", dtype.Int8, 0},
		{"sparse", dtype.Float32, 0}, {"sparse", dtype.BFloat16, 0}, {"sparse", dtype.Float64, 0}, {"sparse", dtype.Int8, 0},
		{"parts", dtype.Float32, 0}, {"parts", dtype.BFloat16, 0}, {"parts", dtype.Float64, 0}, {"parts", dtype.Int8, 0}} {
		for _, n := range race.Some(lengths) {
			if c.name == "ibpc" && n > 32<<10 || c.name == "parts" && n > parts.MaxRow { // they serve no longer rows
				continue
			}
			tables = append(tables, codedOf(c.name, c.dtype, n))
		}
	}
	return tables
}

// codedOf returns the table of a codec, of rows with such elements among their parts where the codec is for rows of parts.
func codedOf(name string, of dtype.Type, rowBytes int) coded {
	if name == "parts" && rowBytes >= 4 {
		of = gputest.Parts(of, rowBytes)
	}
	return coded{name, of, rowBytes}
}

func (c coded) String() string { return fmt.Sprintf("%s/%v/row=%d", c.name, c.dtype, c.rowBytes) }

// rows returns N(0,1) elements, in every fifth row bytes at random, so that it is stored raw. Of the codec for sparse rows, the other four
// have few ones, some N(0,1) elements, or nearly always one of five elements, or are N(0,1) elements.
func (c coded) rows(n int) []byte {
	if c.dtype.IsRow() {
		return gputest.PartsRows(c.dtype, n, uint64(c.rowBytes))
	}
	r := rand.New(rand.NewPCG(uint64(c.rowBytes), 11))
	var all []byte
	for i := range n {
		row := make([]byte, 0, c.rowBytes+8)
		for len(row) < c.rowBytes {
			x := r.NormFloat64()
			if r.IntN(100) == 0 {
				x *= 1e-9 // an element that the sample may have none of
			}
			if c.name == "sparse" {
				switch p := r.Float64(); {
				case i%5 == 0:
					x = math.Floor(p + 0.02)
				case i%5 == 1 && p > 0.1, i%5 == 2 && p > 0.97:
					x = 0
				case i%5 == 2:
					x = float64(1 + r.IntN(5))
				}
			}
			switch {
			case i%5 == 4:
				row = binary.LittleEndian.AppendUint32(row, r.Uint32())
			case c.dtype == dtype.Float32:
				row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(x)))
			case c.dtype == dtype.Float64:
				row = binary.LittleEndian.AppendUint64(row, math.Float64bits(x))
			case c.dtype == dtype.Int8:
				row = append(row, byte(int8(10*x)))
			case c.dtype == dtype.Float16: // near enough: normal numbers with the right exponents
				u := math.Float32bits(float32(x))
				row = binary.LittleEndian.AppendUint16(row, uint16(u>>16&0x8000|max(0, (u>>23&255)-111)&31<<10|u>>13&0x3ff))
			default:
				row = binary.LittleEndian.AppendUint16(row, uint16(math.Float32bits(float32(x))>>16))
			}
		}
		if c.dtype == dtype.Int8 { // bytes that are NaN as float8 would hide others where rows are added up
			for j, x := range row {
				if x&0x7f == 0x7f {
					row[j] = x ^ 1
				}
			}
		}
		all = append(all, row[:c.rowBytes]...)
	}
	return all
}

func (c coded) train(t testing.TB, data []byte) codec.Codec {
	k, err := registry.Train(c.name, data[:len(data)/c.rowBytes/2*c.rowBytes], c.rowBytes, c.dtype)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCoders_Decode(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, table := range codedTables() {
		t.Run(table.String(), func(t *testing.T) {
			n := max(6, min(200, batchFor(table.rowBytes)))
			rows := min(n, 40)
			data := table.rows(rows)
			c := table.train(t, data)
			slabs, hits := encodeSlabs(c, data, table.rowBytes, n, 2)
			skew := int64([]int{0, 0, 4, 8, 1}[i%5])
			both(t, gpu, reason, func(b *bench) decodeResult {
				k, out := decodeOf(b, c, slabs, hits, table.rowBytes, skew)
				b.launch(k)
				return decodeResult{b.counters(k.Counters), out.read(b)}
			}, func(t *testing.T, want, got decodeResult) {
				equalDecode(t, want, got)
				compressed := 0
				for i, h := range hits {
					if !bytes.Equal(got.out[i*table.rowBytes:][:table.rowBytes], data[i*7919%rows*table.rowBytes:][:table.rowBytes]) {
						t.Fatalf("row %d differs from its source", i)
					}
					if slab.Location(h.Word).Compressed() {
						compressed++
					}
				}
				if compressed == 0 || compressed == n {
					t.Errorf("%d of %d rows are compressed, want some and not all", compressed, n)
				}
			})
		})
	}
}

// TestCoders_ManyRows decodes so many rows, by every codec of the registry, on so few blocks that each tile goes through its stages and its part
// of the list dozens of times, and some tiles of a warp have one row less than the others. Without -short all multiprocessors work at once.
func TestCoders_ManyRows(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	if short() {
		defer fewBlocks()()
	}
	for _, name := range listedCodecs() {
		for i, of := range []dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float16, dtype.Float64, dtype.Int8} {
			for j, rowBytes := range race.Some([]int{256, 512, 1024, 1040, 4096}) {
				if short() && i > 1 && j != i-1 { // those have no kernels for some lengths, and EveryPath other lengths
					continue
				}
				table := codedOf(name, of, rowBytes)
				if _, err := registry.Train(name, make([]byte, rowBytes), rowBytes, table.dtype); errors.Is(err, codec.ErrDType) {
					continue
				}
				t.Run(table.String(), func(t *testing.T) {
					n, distinct := 30_000_000/rowBytes+3, 101
					if short() {
						n = manyRows(rowBytes)
					}
					data := table.rows(distinct)
					c := table.train(t, data)
					slabs, hits := encodeSlabs(c, data, rowBytes, n, 3)
					both(t, gpu, reason, func(b *bench) decodeResult {
						k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
						k.Leave = 100
						b.launch(k)
						return decodeResult{b.counters(k.Counters), out.read(b)}
					}, func(t *testing.T, want, got decodeResult) {
						if strings.Contains(name, ":") { // of an error bound: the rows are the host's, not the source's
							equalDecode(t, want, got)
							hits = nil
						}
						equalSources(t, want, got, hits, data, rowBytes)
					})
				})
			}
		}
	}
}

// TestCoders_DecodeCorrupt damages rows and their lengths: the host's decoder says which are corrupt, and nothing outside the output is
// written.
func TestCoders_DecodeCorrupt(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, table := range codedTables() {
		if table.rowBytes > 40_000 {
			continue
		}
		t.Run(table.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(table.rowBytes), 9))
			n := max(6, min(200, batchFor(table.rowBytes)))
			data := table.rows(n)
			c := table.train(t, data)
			slabs, hits := encodeSlabs(c, data, table.rowBytes, n, 1)
			end := int64(len(slabs[0]) - slab.TailSlack)
			for i := range hits {
				l := slab.Location(hits[i].Word)
				if !l.Compressed() {
					continue
				}
				stored := slabs[0][l.Offset():][:l.Stored(0)]
				switch r.IntN(4) {
				case 0:
					hits[i].Word = uint64(slab.Compressed(0, l.Offset(), 1+r.IntN(min(table.rowBytes+8, int(end-l.Offset())))))
				case 1:
					stored[r.IntN(min(len(stored), 8))] ^= 1 << r.IntN(8)
				case 2:
					stored[r.IntN(len(stored))] ^= 1 << r.IntN(8)
				default:
					for j := range stored[min(len(stored), 3):] {
						stored[j] = byte(r.Uint32())
					}
				}
			}
			both(t, gpu, reason, func(b *bench) uint32 {
				k, out := decodeOf(b, c, slabs, hits, table.rowBytes, 0)
				b.launch(k)
				out.read(b)
				return b.counters(k.Counters).Corrupt
			}, func(t *testing.T, want, got uint32) {
				if want != got || got == 0 {
					t.Fatalf("%d corrupt rows, want %d", got, want)
				}
			})
		})
	}
}

func TestCoders_Fetch(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, table := range codedTables() {
		for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
			t.Run(fmt.Sprintf("%v/%v", table, mode), func(t *testing.T) {
				rows := max(4, min(40, batchFor(table.rowBytes)))
				data := table.rows(rows)
				misses := make([]kernels.Found, rows+3)
				for i := range misses {
					misses[i] = kernels.Found{Word: uint64(i * 7919 % rows), Position: uint32(len(misses) - 1 - i)}
				}
				both(t, gpu, reason, func(b *bench) decodeResult {
					tier, err := transfer.Load(b.d, transfer.SourceOf(data, table.rowBytes), transfer.Options{
						Codec: table.name, DType: table.dtype, Mode: mode, Seed: uint64(i),
					})
					b.check(err)
					defer tier.Close()
					k, out, detach := fetchOf(b, tier, misses)
					defer detach()
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					equalDecode(t, want, got)
					for _, m := range misses {
						if !bytes.Equal(got.out[int(m.Position)*table.rowBytes:][:table.rowBytes], data[int(m.Word)*table.rowBytes:][:table.rowBytes]) {
							t.Fatalf("row %d differs from its source", m.Word)
						}
					}
				})
			})
		}
	}
}

// TestCoders_Encode holds rows encoded by a GPU against the Go encoder's, byte for byte, bytes after each stored row included.
func TestCoders_Encode(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, table := range codedTables() {
		t.Run(table.String(), func(t *testing.T) {
			n := max(4, min(100, batchFor(table.rowBytes)))
			data := table.rows(n)
			c := table.train(t, data)
			if !kernels.Encodes(c.(codec.OnDevice).DeviceForm(), table.rowBytes) {
				t.Skip("no encoder on GPUs")
			}
			stride := (table.rowBytes+3)&^3 + 4
			source := bytes.Repeat([]byte{0xa5}, n*stride+slab.TailSlack)
			for r := range n {
				copy(source[r*stride:], data[r*table.rowBytes:][:table.rowBytes])
			}
			both(t, gpu, reason, func(b *bench) [][]byte {
				attached, err := kernels.AttachCodec(b.d, c)
				b.check(err)
				defer b.d.Free(attached.Meta)
				k := kernels.Encode{
					Stride: int64(stride), Codec: attached, Bits: b.alloc(int64(n+63) / 64 * 8), Lengths: b.alloc(int64(n) * 4),
					Totals: b.alloc(abi.EncodeTotalsBytes), Scratch: b.alloc(kernels.EncodeScratchBytes(table.rowBytes, int64(n))),
					Rows: b.put(source), Count: int64(n),
				}
				b.launch(&k)
				totals := *kernels.EncodeTotalsView(device.HostBuffer(b.get(k.Totals)))
				return [][]byte{b.get(k.Rows), b.get(k.Bits), b.get(k.Lengths), []byte(fmt.Sprint(totals))}
			}, func(t *testing.T, want, got [][]byte) {
				for i, what := range []string{"stored rows", "bits", "lengths", "totals"} {
					if !bytes.Equal(want[i], got[i]) {
						t.Errorf("%s differ", what)
					}
				}
				if bytes.Equal(got[0], source) {
					t.Error("no row was stored")
				}
			})
		})
	}
}

// TestCoders_Serve has small batches of hits and misses served by one kernel.
func TestCoders_Serve(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, rowBytes := range race.Some([]int{62, 64, 256, 390, 1028, 4096}) {
		for _, name := range []string{"ibpc", "rank", "zipnn"} {
			for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
				t.Run(fmt.Sprintf("%s/row=%d/%v", name, rowBytes, mode), func(t *testing.T) {
					n := min(300, batchFor(rowBytes))
					in := newServeInput(t, rowBytes, max(2, min(n, 101)), n, name, mode, .5, rand.New(rand.NewPCG(uint64(rowBytes), 3)))
					in.skew, in.find = int64([]int{0, 4, 8}[i%3]), i%2 == 1
					both(t, gpu, reason, func(b *bench) serveResult {
						return in.serve(b, func(kernels.HostRows) {})
					}, func(t *testing.T, want, got serveResult) {
						if want.count != got.count || got.count.Corrupt != 0 {
							t.Fatalf("counters %+v, want %+v", got.count, want.count)
						}
						for i, row := range in.batch {
							source := make([]byte, rowBytes)
							if uint64(row) < uint64(in.rows) {
								source = in.data[int(row)*rowBytes:][:rowBytes]
							}
							if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], source) {
								t.Fatalf("row %d at position %d differs from its source", row, i)
							}
						}
					})
				})
			}
		}
	}
}

// TestCoders_Clusters decodes and encodes rows of several kinds, which ibpc stores by several masks.
func TestCoders_Clusters(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 2)()
	const rowBytes, n = 264, 400
	for _, of := range []dtype.Type{dtype.BFloat16, dtype.Float32, dtype.Float64} {
		t.Run(of.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			kinds := make([]byte, 4*rowBytes)
			for i := range kinds {
				kinds[i] = byte(r.Uint32())
			}
			data := make([]byte, 0, n*rowBytes)
			for i := range n {
				row := bytes.Clone(kinds[i%4*rowBytes:][:rowBytes])
				for j := 0; j < rowBytes; j += of.Size() {
					row[j] = byte(r.Uint32())
				}
				if i%10 == 9 {
					for j := range row {
						row[j] = byte(r.Uint32())
					}
				}
				data = append(data, row...)
			}
			c, err := registry.Train("ibpc", data, rowBytes, of)
			if err != nil {
				t.Fatal(err)
			}
			form := c.(codec.OnDevice).DeviceForm()
			if form.Params[2] < 2 {
				t.Fatalf("%d masks, want several", form.Params[2])
			}
			slabs, hits := encodeSlabs(c, data, rowBytes, n, 2)
			stride := rowBytes + 4
			source := bytes.Repeat([]byte{0xa5}, n*stride+slab.TailSlack)
			for r := range n {
				copy(source[r*stride:], data[r*rowBytes:][:rowBytes])
			}
			both(t, gpu, reason, func(b *bench) [][]byte {
				k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
				b.launch(k)
				if count := b.counters(k.Counters); count.Corrupt != 0 {
					b.t.Errorf("%d rows corrupt", count.Corrupt)
				}
				e := kernels.Encode{
					Stride: int64(stride), Codec: k.Codec, Bits: b.alloc(int64(n+63) / 64 * 8), Lengths: b.alloc(int64(n) * 4),
					Totals: b.alloc(abi.EncodeTotalsBytes), Scratch: b.alloc(16), Rows: b.put(source), Count: int64(n),
				}
				b.launch(&e)
				return [][]byte{out.read(b), b.get(e.Rows), b.get(e.Bits), b.get(e.Lengths)}
			}, func(t *testing.T, want, got [][]byte) {
				for i, what := range []string{"decoded rows", "stored rows", "bits", "lengths"} {
					if !bytes.Equal(want[i], got[i]) {
						t.Errorf("%s differ", what)
					}
				}
				for i := range hits {
					if !bytes.Equal(got[0][i*rowBytes:][:rowBytes], data[i*7919%n*rowBytes:][:rowBytes]) {
						t.Fatalf("row %d differs from its source", i)
					}
				}
			})
		})
	}
}
