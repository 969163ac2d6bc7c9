package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// bench is a device with memory for one test.
type bench struct {
	t testing.TB
	d device.Device
	s device.Stream
}

// both runs the test on the host, then on the GPU, whose results must be the same. Without a GPU the host's must stand up to
// equal's other checks, and the rest is skipped for that reason.
func both[R any](t *testing.T, gpu device.Device, reason error, run func(b *bench) R, equal func(t *testing.T, want, got R)) {
	t.Helper()
	results := make([]R, 2)
	for i, d := range []device.Device{host.Open(1, 2)[0], gpu} {
		if d == nil {
			equal(t, results[0], results[0])
			t.Skip(reason)
		}
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		results[i] = run(&bench{t, d, s})
		s.Close()
	}
	equal(t, results[0], results[1])
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// alloc returns device memory that is freed when the test ends.
func (b *bench) alloc(n int64) device.Buffer {
	b.t.Helper()
	m, err := b.d.Alloc(n, "test")
	b.check(err)
	b.t.Cleanup(func() { b.d.Free(m) })
	return m
}

func (b *bench) put(data []byte) device.Buffer {
	b.t.Helper()
	m := b.alloc(int64(len(data)))
	b.set(m, data)
	return m
}

// set copies data to device memory. Its stream is the test's: to make and destroy one takes a GPU longer than the copy.
func (b *bench) set(m device.Buffer, data []byte) {
	b.t.Helper()
	b.check(b.s.Copy(m, device.HostBuffer(data)))
	b.check(b.s.Synchronize())
}

// putRows puts a batch's row numbers on the device, as int32 or int64.
func (b *bench) putRows(rows []int64, int32s bool) device.Buffer {
	b.t.Helper()
	if int32s {
		return b.put(asBytes(asInt32(rows)))
	}
	return b.put(asBytes(rows))
}

// asInt32 returns row numbers as int32. A number that does not fit becomes the nearest that does; tests have such numbers
// only where they are out of a table's range, and it stays so.
func asInt32(rows []int64) []int32 {
	out := make([]int32, len(rows))
	for i, row := range rows {
		out[i] = int32(max(math.MinInt32, min(row, math.MaxInt32)))
	}
	return out
}

func (b *bench) get(m device.Buffer) []byte {
	b.t.Helper()
	out := make([]byte, m.Size()+16)
	out = out[-uintptr(unsafe.Pointer(&out[0]))&15:][:m.Size()]
	b.check(b.s.Copy(device.HostBuffer(out), m))
	b.check(b.s.Synchronize())
	return out
}

func (b *bench) launch(k device.Kernel) {
	b.t.Helper()
	b.check(b.s.Launch(k))
	b.check(b.s.Synchronize())
}

func (b *bench) counters(m device.Buffer) kernels.Counters {
	return *kernels.CountersView(device.HostBuffer(b.get(m)))
}

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// output is memory for rows: filled with junk, between guards.
type output struct {
	all, rows device.Buffer
	from      int64 // where the rows begin in all
}

const guard = 256

func (b *bench) output(size int64, skew int64) output {
	b.t.Helper()
	return b.outputIn(b.alloc(size+2*guard+skew), size, skew)
}

// outputIn is output in given memory, which has room for the guards and the skew.
func (b *bench) outputIn(all device.Buffer, size, skew int64) output {
	b.t.Helper()
	b.check(b.s.Fill(all, 0xa5))
	b.check(b.s.Synchronize())
	return output{all, all.Slice(guard+skew, guard+skew+size), guard + skew}
}

// read returns the rows and checks the guards.
func (o output) read(b *bench) []byte {
	b.t.Helper()
	all := b.get(o.all)
	from, to := o.from, o.from+o.rows.Size()
	for _, outside := range [][2]int64{{0, from}, {to, o.all.Size()}} {
		for i := outside[0]; i < outside[1]; i++ {
			if all[i] != 0xa5 {
				b.t.Fatalf("byte %d outside the output is written", i-from)
			}
		}
	}
	return all[from:to]
}

// short says whether to run with few and small inputs, encoded by the host: for compute-sanitizer and the emulated GPU, and where
// there is no GPU to hold against the host.
func short() bool { return testing.Short() || cuda.Usable() != nil }

// batchSizes are those that tests run with.
func batchSizes() []int {
	if short() {
		return []int{0, 1, 33, 1500}
	}
	return []int{0, 1, 31, 32, 33, 1000, 100_000}
}

type lookupResult struct {
	found []kernels.Found
	count kernels.Counters
	out   []byte
}

func TestLookup_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, n := range batchSizes() {
		for _, mode := range []string{"mixed", "hits", "misses", "one row", "out of range"} {
			t.Run(fmt.Sprintf("n=%d/%s", n, mode), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(n), 3))
				const tableRows, cached, table, rowBytes = 50_000, 20_000, 3, 12
				layout := hashmap.LayoutFor(cached)
				image := make([]uint64, layout.Bytes()/8)
				var entries []hashmap.Entry
				for row := range int64(cached) {
					l := slab.Raw(int(row%8), 16*row)
					switch row % 100 {
					case 0:
						l = slab.NoLocation(slab.Evicted)
					case 1:
						l = slab.NoLocation(slab.Invalidated)
					}
					entries = append(entries, hashmap.Entry{Key: hashmap.Key(table, 2*row), Location: l})
				}
				if _, err := hashmap.View(asBytes(image), layout).Build(entries); err != nil {
					t.Fatal(err)
				}
				rejected, oversize := make([]uint64, (tableRows+63)/64), make([]uint64, (tableRows+63)/64)
				for i := range rejected {
					rejected[i], oversize[i] = r.Uint64(), r.Uint64()&r.Uint64()&r.Uint64()
				}
				rows := make([]int64, n)
				for i := range rows {
					switch mode {
					case "mixed", "out of range":
						rows[i] = r.Int64N(tableRows)
						if mode == "out of range" && r.IntN(max(1, n/10)) == 0 {
							rows[i] = []int64{-1, tableRows, -1 << 63, 1 << 62}[r.IntN(4)]
						}
					case "hits":
						rows[i] = 2*r.Int64N(200)*100 + 6
					case "misses":
						rows[i] = 1 + 2*r.Int64N(tableRows/2)
					case "one row":
						rows[i] = 4
					}
				}
				lookup := func(b *bench, int32s bool) lookupResult {
					out := b.output(int64(n*rowBytes), 0)
					k := kernels.Lookup{
						Map: b.put(asBytes(image)), Layout: layout, Table: table, Limit: tableRows, Rows: b.putRows(rows, int32s), Int32: int32s,
						Rejected: b.put(asBytes(rejected)), Oversize: b.put(asBytes(oversize)), Out: out.rows, RowBytes: rowBytes,
						Found: b.alloc(int64(n) * kernels.FoundBytes), Counters: b.alloc(kernels.CountersBytes), Peers: 0xa6,
					}
					b.launch(&k)
					res := lookupResult{count: b.counters(k.Counters), out: out.read(b)}
					if n > 0 {
						res.found = sortedFound(kernels.FoundView(device.HostBuffer(b.get(k.Found))), res.count)
					}
					return res
				}
				equal := func(t *testing.T, want, got lookupResult) {
					t.Helper()
					if want.count != got.count {
						t.Fatalf("counters %+v, want %+v", got.count, want.count)
					}
					if !slices.Equal(want.found, got.found) {
						t.Fatal("hits and misses differ")
					}
					if !bytes.Equal(want.out, got.out) {
						t.Fatal("output differs")
					}
				}
				both(t, gpu, reason, func(b *bench) lookupResult {
					res := lookup(b, false)
					equal(t, res, lookup(b, true))
					return res
				}, equal)
			})
		}
	}
}

// TestLookup_NegativeInt32: an int32 is signed, even if the table has so many rows that its bits could be an unsigned row number.
func TestLookup_NegativeInt32(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	rows := []int32{5, -1, math.MaxInt32, math.MinInt32, 0}
	both(t, gpu, reason, func(b *bench) lookupResult {
		layout := hashmap.LayoutFor(16)
		m, out := b.alloc(layout.Bytes()), b.output(int64(len(rows)), 0)
		b.check(b.s.Fill(m, 0xff))
		k := kernels.Lookup{
			Map: m, Layout: layout, Limit: 1 << 33, Rows: b.put(asBytes(rows)), Int32: true, Out: out.rows, RowBytes: 1,
			Found: b.alloc(int64(len(rows)) * kernels.FoundBytes), Counters: b.alloc(kernels.CountersBytes),
		}
		b.launch(&k)
		res := lookupResult{count: b.counters(k.Counters), out: out.read(b)}
		res.found = sortedFound(kernels.FoundView(device.HostBuffer(b.get(k.Found))), res.count)
		return res
	}, func(t *testing.T, _, got lookupResult) {
		want := []kernels.Found{{}, {}, {Word: 5}, {Word: math.MaxInt32, Position: 2}, {Position: 4}}
		if !slices.Equal(got.found, want) || got.count.OutOfRange != 2 || got.count.FirstOutOfRange() != 1 {
			t.Errorf("found %v, %+v", got.found, got.count)
		}
		if want := []byte{0xa5, 0, 0xa5, 0, 0xa5}; !bytes.Equal(got.out, want) {
			t.Errorf("output %x, want %x", got.out, want)
		}
	})
}

// sortedFound orders hits and misses by position and clears what lies between them.
func sortedFound(f []kernels.Found, c kernels.Counters) []kernels.Found {
	byPosition := func(a, b kernels.Found) int { return int(a.Position) - int(b.Position) }
	slices.SortFunc(f[:c.Hits], byPosition)
	slices.SortFunc(f[len(f)-int(c.Misses):], byPosition)
	clear(f[c.Hits : len(f)-int(c.Misses)])
	return f
}

func TestOrder_SortsByPage(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, n := range batchSizes() {
		for _, stride := range []int64{512, 1 << 14, 0} {
			t.Run(fmt.Sprintf("n=%d/stride=%d", n, stride), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(n), uint64(stride)))
				const rows = 1 << 20
				index := make([]uint64, rows)
				for i := range index {
					index[i] = uint64(slab.Compressed(0, int64(i)*444, 443))
				}
				f := make([]kernels.Found, n+10)
				for i := range f {
					f[i] = kernels.Found{Word: r.Uint64N(rows), Position: uint32(i)}
				}
				count := make([]kernels.Counters, 1)
				count[0].Misses = uint32(n)
				offset := func(f kernels.Found) int64 {
					if stride != 0 {
						return int64(f.Word) * stride
					}
					return int64(f.Word) * 444
				}
				both(t, gpu, reason, func(b *bench) []kernels.Found {
					k := kernels.Order{
						Found: b.put(asBytes(f)), Counters: b.put(asBytes(count)), Ordered: b.alloc(int64(len(f)) * kernels.FoundBytes),
						Pages: kernels.Pages{
							Buckets: b.alloc(kernels.OrderBytes),
							Tier:    kernels.HostRows{Mem: device.DeviceBuffer(0, rows*max(stride, 444)), Stride: stride, RowBytes: 440},
						},
					}
					if stride == 0 {
						k.Tier.Index = b.put(asBytes(index))
					}
					b.launch(&k)
					b.launch(&k) // it leaves its scratch memory as it found it
					ordered := slices.Clone(kernels.FoundView(device.HostBuffer(b.get(k.Ordered)))[:n])
					for i := 1; i < n; i++ {
						if offset(ordered[i-1])>>24 > offset(ordered[i])>>24 {
							b.t.Fatalf("%v: %d and %d are out of order", b.d.Info(), i-1, i)
						}
					}
					slices.SortFunc(ordered, func(x, y kernels.Found) int { return int(x.Position) - int(y.Position) })
					return ordered
				}, func(t *testing.T, want, got []kernels.Found) {
					if !slices.Equal(want, got) {
						t.Fatal("misses differ")
					}
				})
			})
		}
	}
}

// rowLengths are those that tests run with: around every boundary of the decoders, and some at random.
func rowLengths() []int {
	if short() {
		return race.Some([]int{4, 7, 64, 256, 400, 512, 516, 1001, 2408, 4096, 8196, 20_000})
	}
	lengths := []int{1, 3, 4, 7, 8, 12, 16, 20, 60, 64, 100, 124, 128, 132, 252, 256, 260, 400, 401, 512, 513, 516, 520,
		528, 640, 1000, 1001, 1023, 1024, 1028, 1500, 2044, 2048, 2052, 2408, 3000, 3333, 4092, 4096, 4100, 8188, 8191, 8192, 8196, 12_345, 65_536, 100_004, slab.MaxRowBytes}
	r := rand.New(rand.NewPCG(1, 1))
	for range 12 {
		lengths = append(lengths, 4+4*r.IntN(2048))
	}
	return lengths
}

// batchFor returns how many rows of a length make a test of some megabytes.
func batchFor(rowBytes int) int {
	if short() {
		return max(2, min(200, 1<<17/rowBytes))
	}
	return max(2, min(3000, 4<<20/rowBytes))
}

func trained(t testing.TB, name string, data []byte, rowBytes int) codec.Codec {
	t.Helper()
	sample := data[:min(len(data), max(rowBytes, 1<<18/rowBytes*rowBytes))]
	c, err := registry.Train(name, sample, rowBytes, gputest.DType(rowBytes))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type decodeResult struct {
	count kernels.Counters
	out   []byte
}

func equalDecode(t *testing.T, want, got decodeResult) {
	t.Helper()
	if want.count != got.count {
		t.Fatalf("counters %+v, want %+v", got.count, want.count)
	}
	if !bytes.Equal(want.out, got.out) {
		for i := range want.out {
			if want.out[i] != got.out[i] {
				t.Fatalf("output differs at byte %d of %d", i, len(want.out))
			}
		}
	}
}

func TestDecode_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, rowBytes := range rowLengths() {
		for _, name := range []string{"none", "ibp4", "ibp8"} {
			kinds := []string{"mixed", gputest.Kinds[i%len(gputest.Kinds)]}
			for j, kind := range kinds {
				t.Run(fmt.Sprintf("row=%d/%s/%s", rowBytes, name, kind), func(t *testing.T) {
					n := batchFor(rowBytes)
					distinct := min(n, 300)
					data := gputest.Rows(kind, distinct, rowBytes, uint64(rowBytes))
					c := trained(t, name, data, rowBytes)
					slabs, hits := encodeSlabs(c, data, rowBytes, n, 2)
					skew := int64([]int{0, 0, 4, 8, 1}[i%5])
					both(t, gpu, reason, func(b *bench) decodeResult {
						k, out := decodeOf(b, c, slabs, hits, rowBytes, skew)
						k.Peers = uint8(i+j) & 1
						b.launch(k)
						return decodeResult{b.counters(k.Counters), out.read(b)}
					}, func(t *testing.T, want, got decodeResult) {
						equalDecode(t, want, got)
						for i := range hits {
							if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], data[i*7919%distinct*rowBytes:][:rowBytes]) {
								t.Fatalf("row %d differs from its source", i)
							}
						}
					})
				})
			}
		}
	}
}

// encodeSlabs puts rows into slabs and returns n hits on them: hit i is on row i × 7919 mod rows, at position i.
func encodeSlabs(c codec.Codec, data []byte, rowBytes, n, slabCount int) (slabs [][]byte, hits []kernels.Found) {
	rows := len(data) / rowBytes
	slabs = make([][]byte, slabCount)
	locations := make([]slab.Location, rows)
	for i := range rows {
		id := i % slabCount
		row := data[i*rowBytes:][:rowBytes]
		at := int64(len(slabs[id]))
		locations[i] = slab.Raw(id, at)
		stored := row
		if c != nil {
			dst := make([]byte, c.EncodeBound())
			if n, err := c.Encode(dst, row); err == nil {
				stored, locations[i] = dst[:n], slab.Compressed(id, at, n)
			}
		}
		slabs[id] = append(slabs[id], stored...)
		for len(slabs[id])%slab.Align != 0 {
			slabs[id] = append(slabs[id], 0xee)
		}
	}
	for i := range slabs {
		slabs[i] = append(slabs[i], make([]byte, slab.TailSlack)...)
	}
	for i := range n {
		hits = append(hits, kernels.Found{Word: uint64(locations[i*7919%rows]), Position: uint32(i)})
	}
	return slabs, hits
}

func decodeOf(b *bench, c codec.Codec, slabs [][]byte, hits []kernels.Found, rowBytes int, skew int64) (*kernels.Decode, output) {
	b.t.Helper()
	attached, err := kernels.AttachCodec(b.d, c)
	b.check(err)
	b.t.Cleanup(func() { b.d.Free(attached.Meta) })
	count := make([]kernels.Counters, 1)
	count[0].Hits = uint32(len(hits))
	out := b.output(int64(len(hits)*rowBytes), skew)
	k := &kernels.Decode{Found: b.put(asBytes(hits)), Counters: b.put(asBytes(count)), Codec: attached, Out: out.rows, RowBytes: rowBytes}
	for _, s := range slabs {
		k.Slabs = append(k.Slabs, b.put(s))
	}
	return k, out
}

// TestDecode_Corrupt decodes rows with flipped bits and wrong lengths: the same rows must be found corrupt, and nothing
// outside the output written. The sanitizer sees to reads.
func TestDecode_Corrupt(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, rowBytes := range race.Some([]int{4, 64, 256, 264, 300, 512, 1000, 2408, 4096, 8192, 40_000}) {
		for _, name := range []string{"ibp4", "ibp8"} {
			t.Run(fmt.Sprintf("row=%d/%s", rowBytes, name), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 9))
				n := min(1000, batchFor(rowBytes))
				data := gputest.Rows("mixed", n, rowBytes, 5)
				c := trained(t, name, data, rowBytes)
				slabs, hits := encodeSlabs(c, data, rowBytes, n, 1)
				for range n {
					slabs[0][r.IntN(len(slabs[0])-slab.TailSlack)] ^= 1 << r.IntN(8)
				}
				end := int64(len(slabs[0]) - slab.TailSlack)
				for i := range hits {
					if l := slab.Location(hits[i].Word); r.IntN(3) == 0 && rowBytes > 4 {
						// A row's length and more are corrupt whatever the bits say.
						stored := 1 + r.IntN(min(rowBytes+rowBytes/8, int(end-l.Offset())))
						hits[i].Word = uint64(slab.Compressed(0, l.Offset(), stored))
					}
				}
				both(t, gpu, reason, func(b *bench) uint32 {
					k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
					k.Peers = uint8(rowBytes>>9) & 1
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

// TestDecode_ManyRows decodes so many rows on so few blocks that each group of lanes goes through its stages and its part
// of the list several times. The list is longer than the hits.
func TestDecode_ManyRows(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	if short() {
		defer fewBlocks()()
	}
	for _, shape := range []struct{ rowBytes, rows int }{{64, 120_001}, {200, 60_000}, {264, 40_000}, {300, 40_001}, {320, 30_000}, {512, 40_003}, {600, 9001}, {2408, 9000}, {4092, 5001}, {8100, 1500}} {
		for _, name := range []string{"none", "ibp4", "ibp8"} {
			t.Run(fmt.Sprintf("row=%d/%s", shape.rowBytes, name), func(t *testing.T) {
				n, rowBytes := shape.rows, shape.rowBytes
				if short() {
					n = manyRows(rowBytes)
				}
				const distinct = 301
				data := gputest.Rows("mixed", distinct, rowBytes, 3)
				c := trained(t, name, data, rowBytes)
				slabs, hits := encodeSlabs(c, data, rowBytes, n, 3)
				both(t, gpu, reason, func(b *bench) decodeResult {
					k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
					beyond := make([]kernels.Found, 100)
					for i := range beyond {
						beyond[i] = kernels.Found{Word: 1<<39 | uint64(i), Position: 1 << 31}
					}
					k.Found = b.put(asBytes(append(slices.Clone(hits), beyond...)))
					k.Leave = 100
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					equalSources(t, want, got, hits, data, rowBytes)
				})
			})
		}
	}
}

// equalSources holds rows of hits, which encodeSlabs has made of data, against it: none is corrupt.
func equalSources(t *testing.T, want, got decodeResult, hits []kernels.Found, data []byte, rowBytes int) {
	t.Helper()
	equalDecode(t, want, got)
	if got.count.Corrupt != 0 {
		t.Fatalf("%d rows corrupt", got.count.Corrupt)
	}
	for i := range hits {
		if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], data[i*7919%(len(data)/rowBytes)*rowBytes:][:rowBytes]) {
			t.Fatalf("row %d differs from its source", i)
		}
	}
}

// TestGather_EqualsHost holds the benchmarks' baselines against the host, with more units than the grid has threads.
func TestGather_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, rowBytes := range race.Some([]int{4, 8, 12, 16, 404, 512, 2408}) {
		for _, n := range []int{1, 1000, 12_000_000 / rowBytes} {
			if short() {
				n = min(n, 1000)
			}
			t.Run(fmt.Sprintf("row=%d/n=%d", rowBytes, n), func(t *testing.T) {
				const rows = 257
				data := gputest.Rows("random", rows, rowBytes, 1)
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = int64(i * 7919 % rows)
				}
				both(t, gpu, reason, func(b *bench) []byte {
					out := b.output(int64(n*rowBytes), 0)
					k := &kernels.Gather{Mem: b.put(data), Rows: b.put(asBytes(ids)), Out: out.rows, RowBytes: rowBytes}
					if rowBytes%16 == 0 { // every third row has a copy, and Mem has zeros in its place
						mem, hot, places := slices.Clone(data), []byte(nil), make([]uint32, rows)
						for row := range places {
							places[row] = math.MaxUint32
							if row%3 == 0 {
								places[row] = uint32(len(hot) / rowBytes)
								hot = append(hot, data[row*rowBytes:][:rowBytes]...)
								clear(mem[row*rowBytes:][:rowBytes])
							}
						}
						k.Mem, k.Hot, k.Places = b.put(mem), b.put(hot), b.put(asBytes(places))
					}
					b.launch(k)
					return out.read(b)
				}, func(t *testing.T, want, got []byte) {
					if !bytes.Equal(want, got) {
						t.Fatal("output differs")
					}
					for i, id := range ids {
						if !bytes.Equal(got[i*rowBytes:][:rowBytes], data[int(id)*rowBytes:][:rowBytes]) {
							t.Fatalf("row %d differs from its source", i)
						}
					}
				})
			})
		}
	}
}

func TestFetch_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, rowBytes := range rowLengths() {
		for _, name := range []string{"none", "ibp4", "ibp8"} {
			for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
				kind := gputest.Kinds[i%len(gputest.Kinds)]
				if i%2 == 0 {
					kind = "mixed"
				}
				t.Run(fmt.Sprintf("row=%d/%s/%v/%s", rowBytes, name, mode, kind), func(t *testing.T) {
					n := batchFor(rowBytes)
					rows := min(n, 300)
					data := gputest.Rows(kind, rows, rowBytes, uint64(i))
					misses := make([]kernels.Found, n)
					for i := range misses {
						misses[i] = kernels.Found{Word: uint64(i * 7919 % rows), Position: uint32(n - 1 - i)}
					}
					both(t, gpu, reason, func(b *bench) decodeResult {
						tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: name, Mode: mode, Seed: 1, OnHost: short()})
						b.check(err)
						defer tier.Close()
						k, out, detach := fetchOf(b, tier, misses)
						defer detach()
						b.launch(k)
						return decodeResult{b.counters(k.Counters), out.read(b)}
					}, func(t *testing.T, want, got decodeResult) {
						equalDecode(t, want, got)
						for _, m := range misses {
							if !bytes.Equal(got.out[int(m.Position)*rowBytes:][:rowBytes], data[int(m.Word)*rowBytes:][:rowBytes]) {
								t.Fatalf("row %d differs from its source", m.Word)
							}
						}
					})
				})
			}
		}
	}
}

func fetchOf(b *bench, tier *transfer.Tier, misses []kernels.Found) (*kernels.Fetch, output, func()) {
	b.t.Helper()
	rows, c, err := tier.Attach(b.d)
	b.check(err)
	count := make([]kernels.Counters, 1)
	count[0].Misses = uint32(len(misses))
	out := b.output(int64(len(misses)*tier.RowBytes()), 0)
	return &kernels.Fetch{Misses: b.put(asBytes(misses)), Counters: b.put(asBytes(count)), Tier: rows, Codec: c, Out: out.rows}, out,
		func() { transfer.Detach(b.d, rows, c) }
}

// TestFetch_Corrupt flips bits of rows in place.
func TestFetch_Corrupt(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, rowBytes := range race.Some([]int{64, 256, 1000, 4096, 20_000}) {
		t.Run(fmt.Sprint("row=", rowBytes), func(t *testing.T) {
			n := min(1000, batchFor(rowBytes))
			data := gputest.Rows("normal", n, rowBytes, 5)
			misses := make([]kernels.Found, n)
			for i := range misses {
				misses[i] = kernels.Found{Word: uint64(i), Position: uint32(i)}
			}
			both(t, gpu, reason, func(b *bench) kernels.Counters {
				tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: "ibp4", Seed: 1, OnHost: short()})
				b.check(err)
				defer tier.Close()
				k, out, detach := fetchOf(b, tier, misses)
				defer detach()
				r := rand.New(rand.NewPCG(3, 9))
				mem := k.Tier.Mem.Bytes()
				for i := range n / 2 { // participation bits: the rows grow
					at := mem[int64(2*i)*k.Tier.Stride:]
					binary.LittleEndian.PutUint16(at, binary.LittleEndian.Uint16(at)&uint16(r.Uint32()))
				}
				b.launch(k)
				out.read(b)
				c := b.counters(k.Counters)
				c.CorruptPosition = 0
				return c
			}, func(t *testing.T, want, got kernels.Counters) {
				if want != got {
					t.Fatalf("counters %+v, want %+v", got, want)
				}
			})
		})
	}
}
