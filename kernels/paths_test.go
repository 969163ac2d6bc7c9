package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// The tests of this file have the rows of every table of listedTables read in every way, first on the host, then on the GPU:
//
//	hits     in the device's own slab | in another device's
//	misses   in place | packed, each with an ordered list | a list with the misses at its back | the kernel that shares them (rows of at most 4 KiB)
//	batches  of hits and misses: in one launch | looked up on the way | as a captured graph | pooled, floats and float8 (rows shorter than 8 KiB)
//	         of a resident table, its rows in two parts
//
// Every row must be what the Go codec restores, and the GPU must count what the host counts. The batches are so long, and the
// blocks so few, that each tile has dozens of rows, which go through its stages in turn. The host encodes: what GPUs encode is held against it by TestCoder_EncodesLikeGo,
// TestCoders_Encode and TestEncode_EqualsHost.
//
// The codecs are divided among several tests, because each test has a time limit of its own on GPUs.

// everyPathGroups are beginnings of names of codecs. A codec is of the first group that fits its name, and each group has a test.
var everyPathGroups = []string{"ibp4", "ibp8", "ibp", "rank", "zipnn", "sleek-eb", "sleek", "sparse", ""}

func TestCodecs_EveryPathIBP4(t *testing.T)    { testEveryPath(t, "ibp4") }
func TestCodecs_EveryPathIBP8(t *testing.T)    { testEveryPath(t, "ibp8") }
func TestCodecs_EveryPathIBP(t *testing.T)     { testEveryPath(t, "ibp") }
func TestCodecs_EveryPathRank(t *testing.T)    { testEveryPath(t, "rank") }
func TestCodecs_EveryPathZipnn(t *testing.T)   { testEveryPath(t, "zipnn") }
func TestCodecs_EveryPathSleekEB(t *testing.T) { testEveryPath(t, "sleek-eb") }
func TestCodecs_EveryPathSleek(t *testing.T)   { testEveryPath(t, "sleek") }
func TestCodecs_EveryPathSparse(t *testing.T)  { testEveryPath(t, "sparse") }
func TestCodecs_EveryPathOthers(t *testing.T)  { testEveryPath(t, "") }

// fewBlocks has launches take few blocks, so that their tiles have dozens of rows each, until restore is called.
func fewBlocks() (restore func()) {
	if short() {
		return kernels.LimitLaunch(1, 4)
	}
	return kernels.LimitLaunch(2, 0)
}

// testEveryPath has the tables of a group read.
func testEveryPath(t *testing.T, group string) {
	t.Helper()
	gpu, reason := gputest.OpenIfAny(t)
	defer fewBlocks()()
	tables := 0
	for i, table := range listed(t) {
		if group != everyPathGroups[slices.IndexFunc(everyPathGroups, func(g string) bool { return strings.HasPrefix(table.name, g) })] {
			continue
		}
		tables++
		t.Run(table.String(), func(t *testing.T) {
			devices := []*tableOn{newTableOn(t, host.Open(1, 2)[0], table)}
			if gpu != nil {
				devices = append(devices, newTableOn(t, gpu, table))
			}
			for _, p := range table.paths(t, i) {
				t.Run(p.name, func(t *testing.T) {
					var counts []kernels.Counters
					for _, d := range devices {
						d.t = t // for messages; its memory is the table's
						got := p.read(d)
						if p.want == nil {
							p.want = got.out
						}
						p.equal(t, p.want, got.out)
						counts = append(counts, got.count)
					}
					if got := counts[len(counts)-1]; got != counts[0] || got.Corrupt != 0 {
						t.Fatalf("counters %+v, want %+v", got, counts[0])
					}
					if gpu == nil {
						t.Skip(reason)
					}
				})
			}
		})
	}
	if tables == 0 {
		t.Error("no codec is of this group")
	}
}

// A path is a way to read a batch of a table, and the output that it must have; nil is the host's.
type path struct {
	name  string
	want  []byte
	read  func(d *tableOn) decodeResult
	equal func(t *testing.T, want, got []byte)
}

// paths returns all paths of the table. i varies how the output is aligned.
func (c listedTable) paths(t *testing.T, i int) (paths []path) {
	n, served := c.batchRows(), c.served(t)
	add := func(name string, want []byte, read func(d *tableOn) decodeResult) {
		paths = append(paths, path{name, want, read, c.equal})
	}
	// Hits, in two slabs.
	slabs, hits := encodeSlabs(c.codec, c.data, c.rowBytes, n, 2)
	var wantHits []byte
	for i := range hits {
		wantHits = append(wantHits, served[i*7919%len(served)]...)
	}
	for peers, name := range []string{"own slab", "peer's slab"} {
		add(name, wantHits, func(d *tableOn) decodeResult {
			d.keep(&d.hits, asBytes(hits))
			for s := range slabs {
				d.keep(&d.slabs[s], slabs[s])
			}
			out := d.outputIn(d.out, int64(n*c.rowBytes), int64([]int{0, 0, 4, 8, 1}[i%5]))
			k := &kernels.Decode{
				Found: d.hits, Counters: d.counted(kernels.Counters{Hits: uint32(n)}), Slabs: d.slabs[:], Codec: d.codec, Out: out.rows,
				RowBytes: c.rowBytes, Peers: uint8(peers) << 1, Leave: 100,
			}
			d.launch(k)
			return decodeResult{d.counters(k.Counters), out.read(&d.bench)}
		})
	}
	// Misses, from a list that ends with the misses, so that its front and its back are the same.
	misses, wantMisses := make([]kernels.Found, n), make([]byte, n*c.rowBytes)
	for i := range misses {
		misses[i] = kernels.Found{Word: uint64(i * 31 / 4 % len(served)), Position: uint32(n - 1 - i)}
		copy(wantMisses[int(misses[i].Position)*c.rowBytes:], served[misses[i].Word])
	}
	for _, mode := range []transfer.Mode{transfer.InPlace, transfer.Packed} {
		for _, how := range []string{"ordered", "at the back", "shared"} {
			if how == "shared" && c.rowBytes > kernels.MaxShareRow {
				continue
			}
			add(fmt.Sprintf("misses/%v/%s", mode, how), wantMisses, func(d *tableOn) decodeResult {
				d.keep(&d.misses, asBytes(misses))
				out := d.outputIn(d.out, int64(n*c.rowBytes), 0)
				k := kernels.Fetch{
					Misses: d.misses, Counters: d.counted(kernels.Counters{Misses: uint32(n)}), Tier: d.tiers[mode], Codec: d.codec, Out: out.rows,
					AtBack: how == "at the back",
				}
				if how == "shared" {
					d.launch(&kernels.ShareFetch{Fetch: k})
				} else {
					d.launch(&k)
				}
				return decodeResult{d.counters(k.Counters), out.read(&d.bench)}
			})
		}
	}
	// A resident table, with longer rows in two parts.
	resident := layResident(t, c.codec, c.data, c.rowBytes, 1, max(16, c.rowBytes*3/4&^15))
	rows := residentRows(n, resident.Rows, rand.New(rand.NewPCG(uint64(i), 2)))
	wantResident := make([]byte, n*c.rowBytes)
	for i, row := range rows {
		if uint64(row) < uint64(len(served)) {
			copy(wantResident[i*c.rowBytes:], served[row])
		}
	}
	add("resident", wantResident, func(d *tableOn) decodeResult {
		k, out := resident.serve(&d.bench, c.codec, rows, false, 0)
		d.launch(k)
		return decodeResult{*kernels.CountersView(k.Result), out.read(&d.bench)}
	})
	// Hits and misses of one batch.
	if c.rowBytes >= abi.LongRow {
		return paths
	}
	in := serveInput{data: c.data, rowBytes: c.rowBytes, rows: c.rows(), name: c.name, dtype: c.dtype, codec: c.codec, skew: int64([]int{0, 4, 8}[i%3])}
	in.fill(t, n, .5, rand.New(rand.NewPCG(uint64(i), 1)))
	wantBatch := make([]byte, n*c.rowBytes)
	for i, row := range in.batch {
		if uint64(row) < uint64(in.rows) {
			copy(wantBatch[i*c.rowBytes:], served[row])
		}
	}
	for _, name := range []string{"one launch", "find", "replay"} {
		in := in
		in.find, in.oneDevice = name == "find", name == "find"
		if name == "replay" {
			in.replays = 2
		}
		add(name, wantBatch, func(d *tableOn) decodeResult {
			r := in.serveFrom(&d.bench, d.tiers[transfer.InPlace], d.codec)
			return decodeResult{r.count, r.out}
		})
	}
	if pool := c.pool(n); pool != nil {
		in.pool = pool
		add("pooled", nil, func(d *tableOn) decodeResult {
			r := in.serveFrom(&d.bench, d.tiers[transfer.InPlace], d.codec)
			return decodeResult{r.count, r.out}
		})
		paths[len(paths)-1].equal = equalSums
	}
	return paths
}

// pool returns how a batch of at least n rows of floats or float8 values is added up, in bags of seven; nil for rows of other elements.
func (c listedTable) pool(n int) *reduce.Batch {
	const bag = 7
	b := &reduce.Batch{Row: c.dtype, Out: dtype.Float32, Columns: c.rowBytes / c.dtype.Size(), Rows: n / bag * bag, Bags: n / bag, Size: bag, Padding: reduce.NoPadding}
	switch {
	case c.bytesOnly():
		b.Row, b.Columns, b.Float8 = dtype.Float32, c.rowBytes, reduce.Float8{Values: dtype.Float8E4M3FN, Factor: 1}
	case !reduce.Float(c.dtype):
		return nil
	}
	b.Stride = int64(b.OutBytes())
	return b
}

// bytesOnly says whether all elements of a row are of one byte.
func (c listedTable) bytesOnly() bool {
	return c.dtype == dtype.Int8 || c.dtype.IsRow() && !slices.ContainsFunc(c.dtype.Parts(), func(p dtype.Part) bool { return p.Type.Size() != 1 })
}

// equalSums fails at the first sum that is not the wanted one. NaNs are equal, and at most half of the sums may be NaN.
func equalSums(t *testing.T, want, got []byte) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	nan := 0
	for at := 0; at < len(want); at += 4 {
		x, y := math.Float32frombits(binary.LittleEndian.Uint32(want[at:])), math.Float32frombits(binary.LittleEndian.Uint32(got[at:]))
		if x != x && y != y {
			nan++
		} else if math.Float32bits(x) != math.Float32bits(y) {
			t.Fatalf("sum %d is %v, want %v", at/4, y, x)
		}
	}
	if nan > len(want)/8 {
		t.Fatalf("%d of %d sums are NaN", nan, len(want)/4)
	}
}

// tableOn is a table on a device, in memory that its paths share.
type tableOn struct {
	bench
	table               *bench              // bench of the whole table's test
	tiers               [2]kernels.HostRows // by mode
	codec               kernels.Codec
	hits, misses, count device.Buffer // the zero buffer until a path needs it
	slabs               [2]device.Buffer
	out                 device.Buffer
}

// newTableOn loads the table and all its kernels.
func newTableOn(t *testing.T, d device.Device, c listedTable) *tableOn {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	on := &tableOn{bench: bench{t, d, s}, table: &bench{t, d, s}}
	t.Cleanup(s.Close)
	for mode := range on.tiers {
		tier, err := transfer.Load(d, transfer.SourceOf(c.data, c.rowBytes), transfer.Options{Codec: c.name, DType: c.dtype, Mode: transfer.Mode(mode), OnHost: true})
		on.check(err)
		t.Cleanup(tier.Close)
		rows, err := tier.AttachRows(d)
		on.check(err)
		t.Cleanup(func() { transfer.Detach(d, rows, kernels.Codec{}) })
		on.tiers[mode] = rows
		if !sameForm(tier.Codec(), c.codec) {
			t.Fatalf("the tier's codec has learnt something else than the table's")
		}
	}
	on.codec, err = kernels.AttachCodec(d, c.codec)
	on.check(err)
	t.Cleanup(func() { d.Free(on.codec.Meta) })
	on.out = on.alloc(int64(c.batchRows()*c.rowBytes) + 2*guard + 8)
	on.count = on.alloc(kernels.CountersBytes)
	on.launch(&kernels.Preload{Codec: on.codec, Shared: c.rowBytes <= kernels.MaxShareRow})
	return on
}

// sameForm says whether two codecs have stored rows read in the same way.
func sameForm(a, b codec.Codec) bool {
	on, ok := a.(codec.OnDevice)
	if !ok {
		return a == nil && b == nil
	}
	other, ok := b.(codec.OnDevice)
	return ok && reflect.DeepEqual(on.DeviceForm(), other.DeviceForm())
}

// keep puts data in memory that lasts as long as the table, unless it is there.
func (d *tableOn) keep(m *device.Buffer, data []byte) {
	if m.Size() == 0 {
		*m = d.table.put(data)
	}
}

// counted sets the counters with which a path begins.
func (d *tableOn) counted(c kernels.Counters) device.Buffer {
	d.set(d.count, asBytes([]kernels.Counters{c}))
	return d.count
}
