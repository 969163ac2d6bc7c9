package kernels_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// A residentTable is rows in the memory of a resident table. Every seventh lies in the overlay, slab overlay. With more than one target it has as many
// ranges, of equally many local numbers; their numbers descend.
type residentTable struct {
	buddy.Layout
	ranges           []kernels.Range // by number; Buddy is empty
	slots, over      [][]byte
	words            [][]uint64
	overlay          int
	slab             []byte
	split, elsewhere int // rows with bytes in overflow places, and rows in the overlay
}

func layResident(t testing.TB, c codec.Codec, data []byte, rowBytes, devices int, targets ...int) *residentTable {
	t.Helper()
	layout, err := buddy.NewLayout(targets[0], rowBytes, int64(len(data)/rowBytes), devices)
	if err != nil {
		t.Fatal(err)
	}
	r := &residentTable{Layout: layout, overlay: min(devices, slab.MaxSlabs-1), ranges: make([]kernels.Range, len(targets))}
	junk := func(n int64) []byte { return bytes.Repeat([]byte{0xb7}, int(n)) }
	slots, overs, each := int64(0), int64(0), r.LocalRows(0)/int64(len(targets))+1
	for i, target := range targets {
		first := int64(i) * each
		r.ranges[len(targets)-1-i] = kernels.Range{Target: target, Slot: slots - first*int64(target), Overflow: overs - first*int64(buddy.Over(target, rowBytes))}
		slots, overs = slots+each*int64(target), overs+each*int64(buddy.Over(target, rowBytes))
	}
	for d := range devices {
		r.slots, r.over = append(r.slots, junk(slots+slab.TailSlack)), append(r.over, nil)
		if overs > 0 {
			r.over[d] = junk(overs + slab.TailSlack)
		}
		r.words = append(r.words, make([]uint64, r.LocalRows(d)))
	}
	for row := range r.Rows {
		d, stored, coded := r.Device(row), data[row*int64(rowBytes):][:rowBytes], false
		if c != nil {
			dst := make([]byte, c.EncodeBound())
			if n, err := c.Encode(dst, stored); err == nil {
				stored, coded = dst[:n], true
			}
		}
		word := buddy.Home(len(stored), coded)
		if row%7 == 6 {
			at := int64(len(r.slab))
			word = buddy.At(slab.Raw(r.overlay, at))
			if coded {
				word = buddy.At(slab.Compressed(r.overlay, at, len(stored)))
			}
			r.slab = append(append(r.slab, stored...), junk(int64(-len(stored)&15))...)
			r.elsewhere++
		} else {
			number := len(targets) - 1 - int(r.Local(row)/each)
			of := r.ranges[number]
			word = word.In(number)
			n := min(len(stored), of.Target)
			copy(r.slots[d][of.SlotOf(r.Local(row)):], stored[:n])
			if n < len(stored) {
				copy(r.over[d][of.OverflowOf(r.Local(row), rowBytes):], stored[n:])
				r.split++
			}
		}
		r.words[d][r.Local(row)] = uint64(word)
	}
	r.slab = append(r.slab, junk(slab.TailSlack)...)
	return r
}

// serve returns the kernel of a batch. Buddy memory is page-locked.
func (r *residentTable) serve(b *bench, c codec.Codec, rows []int64, narrow bool, skew int64) (*kernels.Serve, output) {
	b.t.Helper()
	attached, err := kernels.AttachCodec(b.d, c)
	b.check(err)
	b.t.Cleanup(func() { b.d.Free(attached.Meta) })
	res := &kernels.Resident{Layout: r.Layout}
	for d := range r.Devices {
		res.Slots[d], res.Words[d] = b.put(r.slots[d]), b.put(asBytes(r.words[d]))
		if len(r.over[d]) > 0 {
			m, err := b.d.AllocHost(int64(len(r.over[d])), "test")
			b.check(err)
			b.t.Cleanup(func() { b.d.Free(m) })
			copy(m.Bytes(), r.over[d])
			res.Buddy[d] = m
		}
	}
	if len(r.ranges) > 1 {
		res.Ranges = kernels.NewRanges(&kernels.Range{})
		for i := range r.ranges {
			of := r.ranges[i]
			of.Buddy = res.Buddy
			res.Ranges.Set(i, &of)
		}
		res.Ranges.Use(-1)
		image := make([]byte, kernels.RangesBytes)
		res.Ranges.Image(res, image)
		res.Directory = b.put(image)
		res.Target, res.Buddy = 0, [slab.MaxSlabs]device.Buffer{}
	}
	slabs := make([]device.Buffer, r.overlay+1)
	slabs[r.overlay] = b.put(r.slab)
	out := b.output(int64(len(rows)*r.RowBytes), skew)
	result, err := b.d.AllocHost(kernels.CountersBytes, "test")
	b.check(err)
	b.t.Cleanup(func() { b.d.Free(result) })
	k := &kernels.Serve{
		Lookup: kernels.Lookup{
			Limit: r.Rows, Rows: b.putRows(rows, narrow), Int32: narrow, Peers: 0x52, Out: out.rows, RowBytes: r.RowBytes,
			Counters: b.put(make([]byte, kernels.CountersBytes)),
		},
		Slabs: slabs, Codec: attached, Result: result, Batch: 9, Resident: res,
	}
	return k, out
}

// residentRows returns row numbers of a batch, some of them out of range.
func residentRows(n int, rows int64, r *rand.Rand) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = r.Int64N(rows)
		if r.IntN(50) == 0 {
			all[i] = []int64{-1, rows, 1 << 40}[r.IntN(3)]
		}
	}
	return all
}

// TestResident_EveryCodec reads resident tables of every codec, of rows of many lengths, with short, middle and long targets, over one to eight
// devices: the same bytes and counts as on the host, and as the source.
func TestResident_EveryCodec(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	lengths := []int{4, 100, 256, 512, 1028, 4096, 8192}
	types := []dtype.Type{dtype.Float32, dtype.BFloat16}
	if gpu == nil { // TestServe_ReadsResidentTables is the host's
		lengths = []int{100, 512}
	}
	if !short() {
		lengths = append(lengths, 12, 16, 40, 62, 128, 130, 255, 264, 272, 300, 320, 513, 520, 640, 768, 1024, 1030, 1040, 1536, 2050, 2408, 6000, 8176, 8193, 20_000, 65_540)
		types = append(types, dtype.Float64, dtype.Int8)
	}
	for _, name := range listedCodecs() {
		for j, of := range types {
			for i, rowBytes := range race.Some(lengths) {
				table := codedOf(name, of, rowBytes)
				if (i+j)%2 != 0 { // all of both take minutes
					continue
				}
				if _, err := registry.Train(name, make([]byte, rowBytes), rowBytes, table.dtype); errors.Is(err, codec.ErrDType) || err != nil && rowBytes%4 != 0 || err != nil && rowBytes > 32<<10 {
					continue
				}
				t.Run(table.String(), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(rowBytes), 22))
					n, distinct := max(40, min(5000, 8_000_000/rowBytes)), max(40, min(300, 1_000_000/rowBytes))
					if short() {
						n, distinct = max(20, min(300, 200_000/rowBytes)), max(20, min(100, 100_000/rowBytes))
					}
					data := table.rows(distinct)
					c := table.train(t, data)
					targets := []int{16, rowBytes / 2 &^ 15, rowBytes * 7 / 8 &^ 15, buddy.MaxTarget(rowBytes)}
					if short() {
						targets = targets[1+i%2:][:2]
					}
					for k, target := range append(targets, 0) {
						several := []int{target}
						if target == 0 {
							several = []int{buddy.MaxTarget(rowBytes) * 3 / 4 &^ 15, buddy.MaxTarget(rowBytes), buddy.MaxTarget(rowBytes) / 2 &^ 15, 16}
						}
						if several = slices.DeleteFunc(several, func(target int) bool { return target < 16 }); len(several) == 0 {
							continue
						}
						devices := []int{1, 1 + (i+k)%slab.MaxSlabs}[k%2]
						table := layResident(t, c, data, rowBytes, devices, several...)
						rows, narrow, skew := residentRows(n, table.Rows, r), k%2 == 0, int64([]int{0, 0, 4, 8, 1}[(i+k)%5])
						type result struct {
							count kernels.Counters
							out   []byte
						}
						both(t, gpu, reason, func(b *bench) result {
							k, out := table.serve(b, c, rows, narrow, skew)
							b.launch(k)
							if left := b.counters(k.Lookup.Counters); left != (kernels.Counters{}) {
								b.t.Errorf("counters are %+v after the batch, want zeros", left)
							}
							return result{*kernels.CountersView(k.Result), out.read(b)}
						}, func(t *testing.T, want, got result) {
							t.Helper()
							if want.count != got.count || want.count.Corrupt != 0 || want.count.Batch != 9 {
								t.Fatalf("targets %d, %d devices: counters %+v, want %+v", several, devices, got.count, want.count)
							}
							for i, row := range rows {
								source := make([]byte, rowBytes)
								if uint64(row) < uint64(table.Rows) {
									source = data[row*int64(rowBytes):][:rowBytes]
									if strings.Contains(name, ":") { // of an error bound: the rows are the host's
										source = want.out[i*rowBytes:][:rowBytes]
									}
								}
								if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], source) {
									t.Fatalf("targets %d, %d devices: position %d, row %d differs from its source", several, devices, i, row)
								}
							}
							if table.elsewhere == 0 || slices.Min(several) < rowBytes/4 && table.split == 0 {
								t.Errorf("%d rows in two parts, %d in the overlay", table.split, table.elsewhere)
							}
						})
					}
				})
			}
		}
	}
}

// TestResident_ManyRows reads so many rows that every tile makes tickets several times.
func TestResident_ManyRows(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	lengths := []int{64, 256, 320, 512, 1024, 1028, 4096}
	if gpu == nil {
		lengths = []int{256}
	}
	if short() {
		defer fewBlocks()()
	}
	for _, rowBytes := range lengths {
		for _, name := range []string{"none", "ibp4", "rank"} {
			t.Run(fmt.Sprintf("%s/%d", name, rowBytes), func(t *testing.T) {
				table := coded{name, dtype.Float32, rowBytes}
				n, distinct := 200_000_000/rowBytes+5, 500
				if short() {
					n, distinct = 2*manyRows(rowBytes), 150
				}
				data := table.rows(distinct)
				c := table.train(t, data)
				r := layResident(t, c, data, rowBytes, 1, rowBytes*3/4&^15)
				rows := make([]int64, n)
				for i := range rows {
					rows[i] = int64(i) * 7919 % r.Rows
				}
				both(t, gpu, reason, func(b *bench) uint64 {
					k, out := r.serve(b, c, rows, false, 0)
					b.launch(k)
					got := out.read(b)
					for i, row := range rows {
						if !bytes.Equal(got[i*rowBytes:][:rowBytes], data[row*int64(rowBytes):][:rowBytes]) {
							b.t.Fatalf("position %d, row %d differs from its source", i, row)
						}
					}
					return kernels.CountersView(k.Result).HostBytes
				}, func(t *testing.T, want, got uint64) {
					if want != got || got == 0 {
						t.Errorf("%d bytes of overflow places, want %d", got, want)
					}
				})
			})
		}
	}
}

// TestResident_Kernels: kernels that are there for measurements read what the usual ones do: rows that lie in their slots whole,
// have overflow, or are in the overlay, numbers out of range, and tables of several ranges.
func TestResident_Kernels(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	if gpu == nil {
		t.Skip(reason)
	}
	kinds := map[kernels.ResidentKernel][]int{
		kernels.WideKernel: {768, 1024}, kernels.DoubleKernel: {520, 640},
		kernels.UsualKernel: {128, 256, 512, 768, 1000, 1024, 2048},
	}
	defer kernels.LimitLaunch(2, 2)()
	for _, name := range []string{"none", "ibp4"} {
		for kind, lengths := range kinds {
			for i, rowBytes := range lengths {
				if short() && i%2 != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%d", name, kind, rowBytes), func(t *testing.T) { readsByKernel(t, gpu, reason, name, rowBytes, kind, i) })
			}
		}
	}
}

func readsByKernel(t *testing.T, gpu device.Device, reason error, name string, rowBytes int, kind kernels.ResidentKernel, turn int) {
	r := rand.New(rand.NewPCG(uint64(rowBytes), 28))
	table := coded{name, dtype.Float32, rowBytes}
	data := table.rows(300)
	c := table.train(t, data)
	for k, targets := range [][]int{{buddy.MaxTarget(rowBytes)}, {rowBytes / 2 &^ 15}, {16}, {rowBytes / 2 &^ 15, buddy.MaxTarget(rowBytes)}} {
		res := layResident(t, c, data, rowBytes, []int{1, 3}[(turn+k)%2], targets...)
		for _, n := range []int{1, 37, 3000} {
			rows := residentRows(n, res.Rows, r)
			both(t, gpu, reason, func(b *bench) kernels.Counters {
				k, out := res.serve(b, c, rows, n == 37, 0)
				k.Resident.Kernel = kind
				b.launch(k)
				got := out.read(b)
				for i, row := range rows {
					want := make([]byte, rowBytes)
					if uint64(row) < uint64(res.Rows) {
						want = data[row*int64(rowBytes):][:rowBytes]
					}
					if !bytes.Equal(got[i*rowBytes:][:rowBytes], want) {
						b.t.Fatalf("targets %d: position %d of %d, row %d differs from its source", targets, i, n, row)
					}
				}
				return *kernels.CountersView(k.Result)
			}, func(t *testing.T, want, got kernels.Counters) {
				if want != got {
					t.Errorf("targets %d, %d rows: counters %+v, want %+v", targets, n, got, want)
				}
			})
		}
	}
}

// TestResident_Corrupt damages words and stored bytes: the host says which rows are corrupt, and nothing outside the output is written.
func TestResident_Corrupt(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, name := range []string{"none", "ibp4", "ibp8", "rank", "zipnn", "sparse"} {
		for _, rowBytes := range []int{256, 1024, 8192} {
			t.Run(fmt.Sprintf("%s/%d", name, rowBytes), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 5))
				table := coded{name, dtype.Float32, rowBytes}
				data := table.rows(60)
				c := table.train(t, data)
				res := layResident(t, c, data, rowBytes, 1, rowBytes/2)
				for row := range res.words[0] {
					w := buddy.Word(res.words[0][row])
					if !w.IsHome() {
						continue
					}
					switch r.IntN(4) {
					case 0:
						res.words[0][row] = uint64(buddy.Compressed([]int{1, 7, rowBytes - 1, rowBytes, rowBytes + 1, slab.MaxStored}[r.IntN(6)]))
					case 1:
						for i := range 8 {
							res.slots[0][res.Slot(int64(row))+int64(i)] ^= byte(r.Uint32())
						}
					}
				}
				rows := make([]int64, 60)
				for i := range rows {
					rows[i] = int64(i)
				}
				both(t, gpu, reason, func(b *bench) uint32 {
					k, out := res.serve(b, c, rows, false, 0)
					b.launch(k)
					out.read(b)
					return kernels.CountersView(k.Result).Corrupt
				}, func(t *testing.T, want, got uint32) {
					if want != got || got == 0 {
						t.Errorf("%d corrupt rows, want %d", got, want)
					}
				})
			})
		}
	}
}
