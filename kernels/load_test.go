package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestEncode_EqualsHost holds encoded rows against the Go encoder's, byte for byte, bytes after each stored row included, and
// the table's bits, lengths and totals; and the Go decoder against the rows. They are encoded in two launches, as pieces of
// a table are, in page-locked memory and, a longer stride apart, in the device's.
func TestEncode_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, rowBytes := range rowLengths() {
		for _, name := range []string{"ibp4", "ibp8"} {
			for _, kind := range []string{"mixed", gputest.Kinds[i%len(gputest.Kinds)]} {
				t.Run(fmt.Sprintf("row=%d/%s/%s", rowBytes, name, kind), func(t *testing.T) {
					n := min(500, batchFor(rowBytes))
					data := gputest.Rows(kind, n, rowBytes, uint64(i))
					c := trained(t, name, data, rowBytes)
					stride := (rowBytes + 3) &^ 3
					if kind != "mixed" {
						stride += 4
					}
					type result struct {
						rows, bits, lengths []byte
						totals              kernels.EncodeTotals
					}
					both(t, gpu, reason, func(b *bench) result {
						source := make([]byte, n*stride+slab.TailSlack)
						for i := range source {
							source[i] = 0xa5
						}
						for r := range n {
							copy(source[r*stride:], data[r*rowBytes:][:rowBytes])
						}
						var mem device.Buffer
						if kind == "mixed" {
							var err error
							mem, err = b.d.AllocHost(int64(len(source)), "test")
							b.check(err)
							defer b.d.Free(mem)
							copy(mem.Bytes(), source)
						} else {
							mem = b.put(source)
						}
						attached, err := kernels.AttachCodec(b.d, c)
						b.check(err)
						defer b.d.Free(attached.Meta)
						k := kernels.Encode{
							Stride: int64(stride), Codec: attached, Bits: b.alloc(int64(n+63) / 64 * 8), Lengths: b.alloc(int64(n) * 4),
							Totals: b.alloc(abi.EncodeTotalsBytes), Scratch: b.alloc(kernels.EncodeScratchBytes(rowBytes, int64(n))),
						}
						first := int64(n/2 + 1)
						for _, part := range [][2]int64{{first, int64(n)}, {0, first}} {
							k.First, k.Count = part[0], part[1]-part[0]
							k.Rows = mem.Slice(part[0]*int64(stride), mem.Size())
							b.launch(&k)
						}
						rows := mem.Bytes()
						if rows == nil {
							rows = b.get(mem)
						}
						return result{
							bytes.Clone(rows), b.get(k.Bits), b.get(k.Lengths),
							*kernels.EncodeTotalsView(device.HostBuffer(b.get(k.Totals))),
						}
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
						row := make([]byte, rowBytes)
						for r := range n {
							length := binary.LittleEndian.Uint32(got.lengths[4*r:])
							if set := got.bits[r/8]>>(r%8)&1 != 0; set != (length != 0) {
								t.Fatalf("row %d of length %d has bit %v", r, length, set)
							}
							if length == 0 {
								continue
							}
							if _, err := c.Decode(row, got.rows[r*stride:][:length]); err != nil || !bytes.Equal(row, data[r*rowBytes:][:rowBytes]) {
								t.Fatalf("row %d does not decode to its source: %v", r, err)
							}
						}
					})
				})
			}
		}
	}
}

// TestLoad_EqualsHost holds tiers that a GPU trained and encoded against those of its host: same codec, same bytes. The last
// table goes through the device in many pieces.
func TestLoad_EqualsHost(t *testing.T) {
	gpu := gputest.Open(t)
	type table struct{ rows, rowBytes int }
	var tables []table
	lengths, kinds := []int{1, 3, 4, 7, 12, 64, 100, 256, 400, 401, 1000, 1001, 2408, 8188, 8192, 16_384, 100_003}, gputest.Kinds
	if short() {
		lengths, kinds = []int{7, 12, 256, 1000, 8195}, kinds[:2]
	}
	for _, rowBytes := range lengths {
		n := max(40, min(5000, 1<<19/rowBytes))
		if short() {
			n = min(100, max(40, 1<<17/rowBytes))
		}
		tables = append(tables, table{n, rowBytes})
	}
	if !short() {
		tables = append(tables, table{200_001, 500})
	}
	for i, tb := range tables {
		for j, kind := range kinds {
			if tb.rows > 5000 && kind != "mixed" {
				continue
			}
			names := []string{"auto", "ibp4", "ibp8"}
			switch {
			case short() && tb.rowBytes >= abi.LongRow: // emulated, the search takes seconds
				names = names[1+j%2:][:1]
			case short():
				names = names[(i+j)%3:][:1]
			}
			for _, name := range names {
				mode := []transfer.Mode{transfer.InPlace, transfer.Packed}[(i+len(kind)+len(name))%2]
				t.Run(fmt.Sprintf("row=%d/%s/%s/%v", tb.rowBytes, kind, name, mode), func(t *testing.T) {
					testLoad(t, gpu, gputest.Rows(kind, tb.rows, tb.rowBytes, 3), tb.rowBytes, transfer.Options{Codec: name, Seed: 4, Mode: mode})
				})
			}
		}
	}
}

// testLoad loads a table by the host and by the device.
func testLoad(t *testing.T, d device.Device, data []byte, rowBytes int, o transfer.Options) {
	var tiers [2]*transfer.Tier
	for i, onHost := range []bool{true, false} {
		o.OnHost = onHost
		var err error
		if tiers[i], err = transfer.Load(d, transfer.SourceOf(data, rowBytes), o); err != nil {
			t.Fatal(err)
		}
		defer tiers[i].Close()
	}
	if tiers[0].Totals() != tiers[1].Totals() {
		t.Fatalf("totals %+v, want %+v", tiers[1].Totals(), tiers[0].Totals())
	}
	if a, b := tiers[0].HostBytes(), tiers[1].HostBytes(); a != b {
		t.Fatalf("rows take %d bytes, want %d", b, a)
	}
	if (tiers[0].Codec() == nil) != (tiers[1].Codec() == nil) {
		t.Fatalf("codec %v, want %v", tiers[1].Codec(), tiers[0].Codec())
	}
	if tiers[0].Codec() != nil {
		want, _ := tiers[0].Codec().MarshalBinary()
		got, _ := tiers[1].Codec().MarshalBinary()
		if !bytes.Equal(want, got) {
			t.Fatal("codecs differ")
		}
	}
	for r := range tiers[0].Rows() {
		want, wantCoded, err := tiers[0].Stored(r)
		if err != nil {
			t.Fatal(err)
		}
		got, coded, err := tiers[1].Stored(r)
		if err != nil || coded != wantCoded || !bytes.Equal(want, got) {
			t.Fatalf("row %d differs: %v", r, err)
		}
	}
}

// TestDevice_Healthy: an allocation that fails says so and harms nothing.
func TestDevice_Healthy(t *testing.T) {
	gpu := gputest.Open(t)
	if err := gpu.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := gpu.Alloc(1<<62, "too much"); err == nil {
		t.Fatal("allocated 2^62 bytes")
	}
	if err := device.Upload(gpu, device.Buffer{}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestBuild_EqualsHost builds maps on both sides to the same bytes, and says when entries do not fit or are given twice.
func TestBuild_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	sizes := []int{1, 2, 31, 4096, 100_000, 2_000_000}
	if short() {
		sizes = []int{1, 31, 5000}
	}
	for _, n := range sizes {
		for _, mode := range []string{"distinct", "twice", "full"} {
			t.Run(fmt.Sprintf("n=%d/%s", n, mode), func(t *testing.T) {
				layout := hashmap.LayoutFor(int64(n))
				entries := make([]hashmap.Entry, n)
				for i := range entries {
					entries[i] = hashmap.Entry{Key: hashmap.Key(i%3, int64(i)*7), Location: slab.Raw(i%8, int64(16*i))}
				}
				switch {
				case mode == "twice" && n > 1:
					entries[n-1] = entries[0]
				case mode == "full": // hardly a slot more than entries
					layout = hashmap.Layout{Buckets: uint32(n/4 + 2)}
				}
				both(t, gpu, reason, func(b *bench) []byte {
					k := &kernels.Build{
						Map: b.alloc(layout.Bytes()), Layout: layout, Entries: b.put(asBytes(entries)), Failed: b.alloc(4),
					}
					k.Scratch = b.alloc(k.ScratchBytes(int64(n)))
					b.launch(k)
					failed := b.get(k.Failed)
					if binary.LittleEndian.Uint32(failed) != 0 {
						return []byte("failed")
					}
					return b.get(k.Map)
				}, func(t *testing.T, want, got []byte) {
					if !bytes.Equal(want, got) {
						t.Fatalf("maps of %d bytes differ", len(want))
					}
				})
			})
		}
	}
}
