package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// serveInput is a table of which every other row is cached, some withdrawn, and a batch of its rows.
type serveInput struct {
	data               []byte
	rowBytes, rows     int
	name               string
	dtype              dtype.Type
	codec              codec.Codec
	mode               transfer.Mode
	slabs              [][]byte
	layout             hashmap.Layout
	image              []uint64
	rejected, oversize []uint64
	batch              []int64
	skew               int64
	find               bool          // by Find instead of Serve
	replays            int           // by so many runs of Replay instead of one of Serve
	moving             bool          // with replays: the view changes in each, after the replay's first look at it
	int32s             bool          // row numbers are int32
	absent             bool          // with replays: nothing answers for the rows that the tier does not hold
	pool               *reduce.Batch // the rows are added up, as many as it has
	oneDevice          bool          // slab 1 is the device's own, not another one's: Find is one launch only then
}

const serveTable = 3

func newServeInput(t *testing.T, rowBytes, rows, n int, name string, mode transfer.Mode, share float64, r *rand.Rand) *serveInput {
	t.Helper()
	return newServeInputOf(t, gputest.Rows("mixed", rows, rowBytes, uint64(rowBytes)), rowBytes, n, name, gputest.DType(rowBytes), mode, share, r)
}

// newServeInputOf is newServeInput for given rows.
func newServeInputOf(t *testing.T, data []byte, rowBytes, n int, name string, of dtype.Type, mode transfer.Mode, share float64, r *rand.Rand) *serveInput {
	t.Helper()
	in := &serveInput{data: data, rowBytes: rowBytes, rows: len(data) / rowBytes, mode: mode, name: name, dtype: of}
	tier := in.load(t, host.Open(1, 2)[0])
	defer tier.Close()
	in.codec = tier.Codec()
	in.fill(t, n, share, r)
	return in
}

// fill makes the slabs, the map, the row bits and a batch of n rows of an input whose table and codec are set.
func (in *serveInput) fill(t *testing.T, n int, share float64, r *rand.Rand) {
	t.Helper()
	rows := in.rows
	slabs, hits := encodeSlabs(in.codec, in.data, in.rowBytes, rows, 2)
	in.slabs = slabs
	var entries []hashmap.Entry
	for i, h := range hits {
		switch row := int64(i * 7919 % rows); {
		case row%2 != 0:
		case row%26 == 0:
			entries = append(entries, hashmap.Entry{Key: hashmap.Key(serveTable, row), Location: slab.NoLocation(slab.Evicted)})
		default:
			entries = append(entries, hashmap.Entry{Key: hashmap.Key(serveTable, row), Location: slab.Location(h.Word)})
		}
	}
	in.layout = hashmap.LayoutFor(int64(len(entries)))
	in.image = make([]uint64, in.layout.Bytes()/8)
	if _, err := hashmap.View(asBytes(in.image), in.layout).Build(entries); err != nil {
		t.Fatal(err)
	}
	in.rejected, in.oversize = make([]uint64, (rows+63)/64), make([]uint64, (rows+63)/64)
	for i := range in.rejected {
		in.rejected[i], in.oversize[i] = r.Uint64(), r.Uint64()&r.Uint64()
	}
	for range n {
		row := r.Int64N(int64(rows))
		if r.Float64() < share {
			row &^= 1
		} else if row |= 1; row >= int64(rows) {
			row = 1
		}
		if r.IntN(500) == 0 {
			row = []int64{-1, int64(rows), -1 << 63, 1 << 62}[r.IntN(4)]
		}
		in.batch = append(in.batch, row)
	}
}

// load returns the host tier; its codec is the same on every device.
func (in *serveInput) load(t testing.TB, d device.Device) *transfer.Tier {
	t.Helper()
	tier, err := transfer.Load(d, transfer.SourceOf(in.data, in.rowBytes), transfer.Options{Codec: in.name, DType: in.dtype, Mode: in.mode, Seed: 1, OnHost: short()})
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

type serveResult struct {
	count, left kernels.Counters
	out         []byte
}

// serve runs the batch, after alter has changed the host tier's memory.
func (in *serveInput) serve(b *bench, alter func(kernels.HostRows)) (result serveResult) {
	b.t.Helper()
	in.attached(b, func(rows kernels.HostRows, c kernels.Codec) {
		alter(rows)
		result = in.serveFrom(b, rows, c)
	})
	return result
}

// attached calls do with the host tier and the codec as b's device sees them.
func (in *serveInput) attached(b *bench, do func(kernels.HostRows, kernels.Codec)) {
	b.t.Helper()
	tier := in.load(b.t, b.d)
	defer tier.Close()
	rows, c, err := tier.Attach(b.d)
	b.check(err)
	defer transfer.Detach(b.d, rows, c)
	do(rows, c)
}

// serveFrom runs the batch.
func (in *serveInput) serveFrom(b *bench, rows kernels.HostRows, attached kernels.Codec) serveResult {
	b.t.Helper()
	batch, size, skew := in.batch, int64(len(in.batch)*in.rowBytes), in.skew
	if in.pool != nil {
		batch, size, skew = batch[:in.pool.Rows], int64(in.pool.Bags)*in.pool.Stride, 0
	}
	out := b.output(size, skew)
	result, err := b.d.AllocHost(kernels.CountersBytes, "test")
	b.check(err)
	defer b.d.Free(result)
	k := kernels.Serve{
		Lookup: kernels.Lookup{
			Map: b.put(asBytes(in.image)), Layout: in.layout, Table: serveTable, Limit: int64(in.rows), Rows: b.putRows(batch, in.int32s), Int32: in.int32s,
			Rejected: b.put(asBytes(in.rejected)), Oversize: b.put(asBytes(in.oversize)), Out: out.rows, RowBytes: in.rowBytes,
			Counters: b.alloc(kernels.CountersBytes),
		},
		Codec: attached, Tier: rows, Result: result, Batch: 7,
	}
	if !in.oneDevice {
		k.Lookup.Peers = 1 << 1
	}
	for _, s := range in.slabs {
		k.Slabs = append(k.Slabs, b.put(s))
	}
	if in.replays > 0 {
		return in.replay(b, k, out)
	}
	if (kernels.Ending{Result: result, Batch: 7}).Published() {
		b.t.Fatal("published before the batch")
	}
	if in.pool != nil {
		k.Pool, k.Partials = in.pool, b.alloc(max(16, in.pool.PartialBytes()))
		b.launch(k.Pooled())
	} else if in.find {
		k.Lookup.Found = b.alloc(int64(len(in.batch)) * kernels.FoundBytes)
		b.launch(&kernels.Find{
			Lookup: k.Lookup, Slabs: k.Slabs, Codec: k.Codec, Tier: rows, End: kernels.Ending{Result: result, Batch: 7, Kernels: 1},
		})
	} else {
		b.launch(&k)
	}
	if !(kernels.Ending{Result: result, Batch: 7}).Published() {
		b.t.Fatal("not published")
	}
	return serveResult{*kernels.CountersView(result), b.counters(k.Lookup.Counters), out.read(b)}
}

// replay serves the batch several times as a captured graph would, and returns the counters of one time.
func (in *serveInput) replay(b *bench, serve kernels.Serve, out output) serveResult {
	b.t.Helper()
	k := kernels.Replay{Serve: serve, State: b.alloc(kernels.ReplayStateBytes)}
	if in.absent {
		k.Absent = in.absentBatch(b, &k)
	}
	var view []byte
	if b.d.NeedsStaging() { // all that may change comes from the view
		const version = kernels.ReplayTurns + 3
		views := make([]uint64, kernels.ReplayViewsBytes/8)
		views[0] = version
		view = asBytes(views)[kernels.ReplayViewAt(version):][:kernels.ReplayViewBytes]
		k.Serve.WriteView(view)
		if in.moving { // the version is the number of blocks that have begun, which a replay adds to when it announces itself
			k.Views = b.put(make([]byte, kernels.ReplayViewsBytes))
			k.State = k.Views.Slice(0, kernels.ReplayStateBytes)
		} else {
			k.Views = b.put(asBytes(views))
		}
		l := &k.Serve.Lookup
		l.Map, l.Layout, l.Peers, l.Limit, l.Rejected, l.Oversize = device.Buffer{}, hashmap.Layout{}, 0, 0, device.Buffer{}, device.Buffer{}
		k.Serve.Slabs, k.Serve.Tier = nil, kernels.HostRows{RowBytes: serve.Tier.RowBytes, Ahead: serve.Tier.Ahead}
	}
	var before, total kernels.ReplayCounts
	for i := range in.replays {
		if begun, ended := k.Progress(b.get(k.State)); begun != uint64(i) || ended != begun {
			b.t.Fatalf("before replay %d: %d begun, %d ended", i+1, begun, ended)
		}
		if in.moving && view != nil { // all views but the latest are of an empty table; the first lies where the counts are
			for n := range uint64(kernels.ReplayTurns - 1) {
				at, content := kernels.ReplayViewAt(n+1), make([]byte, kernels.ReplayViewBytes)
				if n == uint64(i) {
					content = view
				}
				b.check(device.Upload(b.d, k.Views.Slice(at, at+kernels.ReplayViewBytes), content))
			}
		}
		b.launch(&k)
		if in.absent {
			in.endAbsent(b, &k, uint32(i+1))
		}
		copied, err := b.d.AllocHost(kernels.ReplayStateBytes, "test")
		b.check(err)
		defer b.d.Free(copied)
		b.launch(&kernels.ReplayLook{States: k.State, Copies: copied})
		state := copied.Bytes()
		begun, ended := k.Progress(state)
		if begun != uint64(i+1) || ended != begun {
			b.t.Fatalf("after replay %d: %d begun, %d ended", i+1, begun, ended)
		}
		before, total = total, k.Counts(state)
	}
	c := kernels.Counters{
		HostBytes: total.HostBytes - before.HostBytes, Peers: uint32(total.Peers - before.Peers),
		Corrupt: uint32(total.Corrupt - before.Corrupt), OutOfRange: uint32(total.OutOfRange - before.OutOfRange), Batch: 7,
	}
	if c.OutOfRange != 0 {
		c.NotFirst = ^uint32(total.FirstOutOfRange())
	}
	for r := range c.Reasons {
		c.Reasons[r] = uint32(total.Reasons[r] - before.Reasons[r])
		c.Misses += c.Reasons[r]
	}
	c.Hits = uint32(len(in.batch)) - c.Misses - c.OutOfRange
	if n := uint64(in.replays); total.HostBytes != n*c.HostBytes || total.Peers != n*uint64(c.Peers) || total.OutOfRange != n*uint64(c.OutOfRange) {
		b.t.Fatalf("counts %+v of %d replays with counters %+v", total, n, c)
	}
	return serveResult{c, kernels.Counters{}, out.read(b)}
}

// peers returns how many of the batch's rows lie in slab 1, which is another device's.
func (in *serveInput) peers() (n uint32) {
	if in.oneDevice {
		return 0
	}
	m := hashmap.View(asBytes(in.image), in.layout)
	for _, row := range in.batch {
		if uint64(row) < uint64(in.rows) {
			if l := m.Find(hashmap.Key(serveTable, row)); l.Valid() && l.Slab() == 1 {
				n++
			}
		}
	}
	return n
}

func TestServe_EqualsHost(t *testing.T) { testServe(t, false, 0) }

// TestReplay_EqualsHost has batches served as in captured graphs.
func TestReplay_EqualsHost(t *testing.T) { testServe(t, false, 3) }

// TestReplay_TakesTheLatestView: a view that is replaced between a replay's first look and its announcement is not read.
func TestReplay_TakesTheLatestView(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, name := range []string{"none", "ibp4", "rank", "zipnn"} {
		t.Run(name, func(t *testing.T) {
			in := newServeInput(t, 256, 301, 5, name, transfer.InPlace, .5, rand.New(rand.NewPCG(1, 1))) // 5 rows: one block
			in.replays, in.moving = kernels.ReplayTurns-1, true
			both(t, gpu, reason, func(b *bench) serveResult {
				return in.serve(b, func(kernels.HostRows) {})
			}, func(t *testing.T, want, got serveResult) {
				if want.count != got.count || got.count.OutOfRange != 0 || !bytes.Equal(want.out, got.out) {
					t.Fatalf("counters %+v, want %+v, or other rows", got.count, want.count)
				}
			})
		})
	}
}

// TestFind_EqualsHost has batches served by Find and what must follow it.
func TestFind_EqualsHost(t *testing.T) { testServe(t, true, 0) }

func testServe(t *testing.T, find bool, replays int) {
	t.Helper()
	gpu, reason := gputest.OpenIfAny(t)
	lengths := rowLengths()
	for i, rowBytes := range lengths {
		if rowBytes >= abi.LongRow {
			continue
		}
		for _, name := range []string{"none", "ibp4", "ibp8"} {
			for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
				share := []float64{1, .5, 0, .9}[(i+int(mode))%4]
				t.Run(fmt.Sprintf("row=%d/%s/%v/share=%v", rowBytes, name, mode, share), func(t *testing.T) {
					n := batchFor(rowBytes) - i%3
					if i == 0 && !short() {
						n = 200_001
					}
					r := rand.New(rand.NewPCG(uint64(rowBytes), 3))
					in := newServeInput(t, rowBytes, max(2, min(n, 301)), n, name, mode, share, r)
					in.skew, in.find, in.oneDevice, in.replays = int64([]int{0, 0, 4, 8, 1}[i%5]), find, find && (i+int(mode))%2 == 0, replays
					both(t, gpu, reason, func(b *bench) (got serveResult) {
						var want serveResult
						in.attached(b, func(rows kernels.HostRows, c kernels.Codec) {
							in.int32s = false
							want = in.serveFrom(b, rows, c)
							in.int32s = true
							got = in.serveFrom(b, rows, c)
						})
						if want.count != got.count || got.left != want.left || !bytes.Equal(want.out, got.out) {
							b.t.Fatalf("%v: int32 row numbers: counters %+v, want %+v, or other rows", b.d.Info(), got.count, want.count)
						}
						return got
					}, func(t *testing.T, want, got serveResult) {
						if want.count != got.count || got.count.Corrupt != 0 {
							t.Fatalf("counters %+v, want %+v", got.count, want.count)
						}
						if got.left != (kernels.Counters{}) {
							t.Fatalf("counters left behind: %+v", got.left)
						}
						if c := got.count; c.Peers != in.peers() {
							t.Fatalf("%d hits in the other slab, want %d", c.Peers, in.peers())
						}
						if c := got.count; int(c.Hits+c.Misses+c.OutOfRange) != n || c.Batch != 7 || share == .5 && n > 100 && (c.Hits == 0 || c.Misses == 0) {
							t.Fatalf("counters of %d rows: %+v", n, c)
						}
						for i, row := range in.batch {
							want := make([]byte, rowBytes)
							if uint64(row) < uint64(in.rows) {
								want = in.data[int(row)*rowBytes:][:rowBytes]
							}
							if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], want) {
								t.Fatalf("row %d at position %d differs from its source", row, i)
							}
						}
						if !bytes.Equal(want.out, got.out) {
							t.Fatal("output differs")
						}
					})
				})
			}
		}
	}
}

// vectorRows returns elements of columns with a base for each and of rows of different lengths, exp(N(0,1)/2), so that rank has classes of rows. A few rows have
// random bits.
func vectorRows(r *rand.Rand, rows, columns int, of dtype.Type) (data []byte) {
	scale, mean := make([]float64, columns), make([]float64, columns)
	for j := range columns {
		scale[j], mean[j] = math.Exp(r.NormFloat64()/4), 1.2*r.NormFloat64()
	}
	for i := range rows {
		length := math.Exp(r.NormFloat64() / 2)
		for j := range columns {
			x := math.Float32bits(float32(length * (r.NormFloat64()*scale[j] + mean[j])))
			if i%17 == 0 {
				x = r.Uint32()
			}
			switch of {
			case dtype.Float32:
				data = binary.LittleEndian.AppendUint32(data, x)
			case dtype.BFloat16:
				data = binary.LittleEndian.AppendUint16(data, uint16(x>>16))
			default: // float16 has five bits of the exponent
				data = binary.LittleEndian.AppendUint16(data, uint16(x>>16&0x8000|(x&0x7fffffff-112<<23)>>13&0x7fff))
			}
		}
	}
	return data
}

// TestFind_ManyRows has so many rows that each tile looks up several rounds of them, and some tiles have one row less than the others. One
// device's slabs hold most of the rows, so that Find is one launch.
func TestFind_ManyRows(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	if short() {
		defer fewBlocks()()
	}
	for _, rowBytes := range race.Some([]int{64, 256, 512, 1024, 4096}) {
		for _, table := range []struct {
			coded
			vectors bool
		}{
			{coded{"none", dtype.Float32, rowBytes}, false}, {coded{"ibp4", dtype.Float32, rowBytes}, false}, {coded{"rank", dtype.Float32, rowBytes}, false},
			{coded{"rank", dtype.BFloat16, rowBytes}, false}, {coded{"rank", dtype.BFloat16, rowBytes}, true}, {coded{"rank", dtype.Float16, rowBytes}, true},
		} {
			if short() && table.vectors && rowBytes > 512 {
				continue // training takes long
			}
			t.Run(fmt.Sprintf("%s/vectors=%v", table.coded, table.vectors), func(t *testing.T) {
				n, rows := 200_000_000/max(256, rowBytes)+3, 901
				if short() {
					n, rows = 2*manyRows(rowBytes), 151
				}
				r := rand.New(rand.NewPCG(uint64(rowBytes), 5))
				data := table.rows
				if table.vectors {
					rows = max(rows, 301) // enough for training to give rank bases
					data = func(n int) []byte { return vectorRows(r, n, rowBytes/table.dtype.Size(), table.dtype) }
				}
				in := newServeInputOf(t, data(rows), rowBytes, n, table.name, table.dtype, transfer.InPlace, .97, r)
				if table.vectors {
					if form := in.codec.(codec.OnDevice).DeviceForm(); form.Kernel != "rankb2" {
						t.Fatalf("kernels are %s", form.Kernel)
					}
				}
				in.find, in.oneDevice = true, true
				both(t, gpu, reason, func(b *bench) serveResult {
					return in.serve(b, func(kernels.HostRows) {})
				}, func(t *testing.T, want, got serveResult) {
					if want.count != got.count || got.count.Corrupt != 0 || got.count.Hits < uint32(n)/2 || got.count.Misses == 0 {
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

// TestServe_Corrupt damages rows in the slabs and in place, and the map's lengths: the same number must be found corrupt, and
// nothing outside the output written. The sanitizer sees to reads.
func TestServe_Corrupt(t *testing.T) { testServeCorrupt(t, false) }

func TestFind_Corrupt(t *testing.T) { testServeCorrupt(t, true) }

func testServeCorrupt(t *testing.T, find bool) {
	t.Helper()
	gpu, reason := gputest.OpenIfAny(t)
	for _, rowBytes := range race.Some([]int{64, 256, 1000, 4096}) {
		for _, name := range []string{"ibp4", "ibp8"} {
			t.Run(fmt.Sprintf("row=%d/%s", rowBytes, name), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 3))
				rows := 300
				in := newServeInput(t, rowBytes, rows, 600, name, transfer.InPlace, .5, r)
				in.find, in.oneDevice = find, find
				for i := range in.slabs {
					for range rows {
						in.slabs[i][r.IntN(len(in.slabs[i])-slab.TailSlack)] ^= 1 << r.IntN(8)
					}
				}
				seed := r.Uint64()
				both(t, gpu, reason, func(b *bench) kernels.Counters {
					got := in.serve(b, func(h kernels.HostRows) {
						r := rand.New(rand.NewPCG(seed, 9))
						for i := range rows / 2 { // participation bits: the rows grow
							at := h.Mem.Bytes()[int64(2*i+1)*h.Stride:]
							binary.LittleEndian.PutUint16(at, binary.LittleEndian.Uint16(at)&uint16(r.Uint32()))
						}
					})
					if got.left != (kernels.Counters{}) {
						b.t.Fatalf("counters left behind: %+v", got.left)
					}
					got.count.CorruptPosition = 0
					return got.count
				}, func(t *testing.T, want, got kernels.Counters) {
					if want != got || got.Corrupt == 0 {
						t.Fatalf("counters %+v, want %+v", got, want)
					}
				})
			})
		}
	}
}

func TestServe_IndexTooLong(t *testing.T) { testServeIndexTooLong(t, false) }

func TestFind_IndexTooLong(t *testing.T) { testServeIndexTooLong(t, true) }

// testServeIndexTooLong lets a packed tier's index say that rows are longer than they are, up to far more than a row: no
// shared memory beyond a row's is written, and the rows are counted as corrupt.
func testServeIndexTooLong(t *testing.T, find bool) {
	t.Helper()
	gpu, reason := gputest.OpenIfAny(t)
	for _, rowBytes := range race.Some([]int{64, 256, 1000, 4096}) {
		t.Run(fmt.Sprint("row=", rowBytes), func(t *testing.T) {
			in := newServeInput(t, rowBytes, 300, 600, "ibp4", transfer.Packed, .5, rand.New(rand.NewPCG(uint64(rowBytes), 4)))
			in.find, in.oneDevice = find, find
			both(t, gpu, reason, func(b *bench) kernels.Counters {
				got := in.serve(b, func(h kernels.HostRows) {
					index := make([]uint64, in.rows)
					b.check(device.Download(b.d, asBytes(index), h.Index))
					for i, word := range index {
						if l := slab.Location(word); l.Compressed() && i%3 != 0 {
							most := min(slab.MaxStored, int(h.Mem.Size()-l.Offset()))
							index[i] = uint64(slab.Compressed(0, l.Offset(), []int{most, l.Stored(rowBytes) + 1}[i%2]))
						}
					}
					b.check(device.Upload(b.d, h.Index, asBytes(index)))
				})
				if got.left != (kernels.Counters{}) {
					b.t.Fatalf("counters left behind: %+v", got.left)
				}
				got.count.CorruptPosition = 0
				return got.count
			}, func(t *testing.T, want, got kernels.Counters) {
				if want != got || got.Corrupt == 0 {
					t.Fatalf("counters %+v, want %+v", got, want)
				}
			})
		})
	}
}
