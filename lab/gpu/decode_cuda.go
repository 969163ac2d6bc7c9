//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

const (
	// decodedBytes is what a batch of hitDecode writes at most.
	decodedBytes = 512 << 20
	// codecTableBytes is how much of a table each codec of hit-codecs is measured on, at most.
	codecTableBytes = decodedBytes
	// sparseRowsCodec is the codec that hit-codecs measures on 0/1 rows, too.
	sparseRowsCodec = "sparse"
)

// sparseDecode is hitDecode of rows that compress well.
func (r *runner) sparseDecode(rowBytes int) {
	tier := r.load(r.sparseRows(), rowBytes)
	defer tier.Close()
	if tier.Codec() == nil {
		must(fmt.Errorf("rows of %d bytes stay raw", rowBytes))
	}
	r.hitDecode(tier, r.sparseRows(), "hit-decode", SparseCodec, r.d)
}

// hitCodecs is hitDecode by every codec that was asked for, that GPUs decode and that serves float32, bfloat16 or float16 elements, except the one
// that hit-decode measures; by the codec for sparse rows of 0/1 rows, too. A codec that fails stops no other.
func (r *runner) hitCodecs(rowBytes int) {
	var failed []error
	for _, of := range []struct {
		table  func() *table
		dtype  dtype.Type
		suffix string
		only   string // "" for every codec
	}{{r.normalRows, dtype.Float32, "", ""}, {r.halfRows, dtype.BFloat16, BFloat16Suffix, ""},
		{r.float16Rows, dtype.Float16, Float16Suffix, ""}, {r.sparseRows, dtype.Float32, OnesSuffix, sparseRowsCodec}} {
		if of.only != "" && !slices.Contains(r.o.Codecs, of.only) {
			continue
		}
		t := of.table()
		rows := whole(t.host.Bytes()[:min(t.host.Size(), codecTableBytes)], rowBytes)
		for _, name := range r.o.Codecs {
			if name == codecName && of.dtype == dtype.Float32 || of.only != "" && name != of.only {
				continue
			}
			if err := try(func() { r.hitCodec(rows, rowBytes, name, of.dtype, t, name+of.suffix) }); err != nil {
				failed = append(failed, fmt.Errorf("%s of %v, %d bytes: %w", name, of.dtype, rowBytes, err))
			}
		}
	}
	must(errors.Join(failed...))
}

func (r *runner) hitCodec(rows []byte, rowBytes int, name string, elements dtype.Type, of *table, label string) {
	defer r.free()
	tier, err := transfer.Load(r.d, transfer.SourceOf(rows, rowBytes), transfer.Options{Codec: name, DType: elements, Seed: seed})
	if errors.Is(err, codec.ErrDType) {
		return
	}
	must(err)
	defer tier.Close()
	if on, ok := tier.Codec().(codec.OnDevice); ok && kernels.Decodes(on.DeviceForm()) {
		r.hitDecode(tier, of, "hit-codecs", label, r.d)
	}
}

// halves returns pairs of N(0,1) bfloat16 elements.
func halves(bytes int64) pattern {
	return newPattern(bytes, func(r *rand.Rand) float32 {
		low, high := math.Float32bits(float32(r.NormFloat64())), math.Float32bits(float32(r.NormFloat64()))
		return math.Float32frombits(low>>16 | high&0xffff0000)
	})
}

// float16s returns N(0,1) float16 elements, which repeat after half of a pattern.
func float16s(bytes int64) pattern {
	t := get((&dataset.Table{DType: dtype.Float32, Rows: 1, RowBytes: len(emptyPattern(bytes)), Data: normals(bytes)}).Cast("f16"))
	return append(t.Data, t.Data...)
}

// hitDecode decodes rows of a slab in a device's memory, beside a plain gather of the same rows, uncompressed, from there.
func (r *runner) hitDecode(tier *transfer.Tier, t *table, name, label string, in *cuda.Device) {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, max(1, decodedBytes/rowBytes))
	locations, size := make([]slab.Location, rows), int64(0)
	for i := range locations {
		s, compressed, err := tier.Stored(int64(i))
		must(err)
		locations[i] = slab.Raw(0, size)
		if compressed {
			locations[i] = slab.Compressed(0, size, len(s))
		}
		size += int64(slab.SlotBytes(len(s)))
	}
	image := r.staging(size + slab.TailSlack)
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, _, _ := tier.Stored(int64(i))
			copy(image.Bytes()[locations[i].Offset():], s)
		}
	})
	mem, plainMem, peers := putOn(in, image.Bytes()), t.mem, uint8(0)
	defer in.Free(mem)
	if in != r.d {
		plainMem, peers = putOn(in, t.host.Bytes()), 1
		defer in.Free(plainMem)
	}
	codec := get(kernels.AttachCodec(r.d, tier.Codec()))
	r.buffers = append(r.buffers, codec.Meta)
	out := r.alloc(int64(batch * rowBytes))
	counters := r.put(asBytes([]kernels.Counters{{Hits: uint32(batch)}}))
	ids := r.batches(func(set uint64) []int64 { return randomRows(batch, 0, int64(rows), set) })
	var decodes [sets]device.Kernel
	for i := range decodes {
		decodes[i] = &kernels.Decode{
			Found: r.found(ids.numbers[i], func(id int64) uint64 { return uint64(locations[id]) }), Counters: counters, Slabs: []device.Buffer{mem}, Codec: codec, Out: out, RowBytes: rowBytes, Peers: peers,
		}
	}
	plain := r.launches(ids.plain(plainMem, out, rowBytes))
	decode := r.launches(decodes)
	var after [1]kernels.Counters
	must(device.Download(r.d, asBytes(after[:]), counters))
	if after[0].Corrupt != 0 {
		must(fmt.Errorf("%d rows corrupt", after[0].Corrupt))
	}
	check(r.d, "decode", out, t.host.Bytes(), ids.last(r.o.Runs), rowBytes)
	bytes, total := float64(batch*rowBytes)/1e9, tier.Totals()
	x := Result{
		Case: name, RowBytes: rowBytes, Codec: label, TableBytes: int64(rows * rowBytes), Batch: batch, Value: bytes / decode, Unit: "GB/s",
		Baseline: "plain gather, uncompressed", BaselineValue: bytes / plain, Compression: float64(total.RawBytes) / float64(total.StoredBytes),
	}
	if in != r.d {
		x.Baseline = "plain gather of the peer's memory, uncompressed"
		x.Detail = fmt.Sprintf("goal × ratio %.3f", x.Compression)
	}
	if label == SparseCodec {
		x.Detail = fmt.Sprintf("0/1 at %g %% density, ratio %.1f; %.1f in slots", 100*density, x.Compression, float64(total.RawBytes)/float64(total.SlotBytes))
	}
	r.add(x)
}

// found returns what lookup leaves of a batch whose rows have these words.
func (r *runner) found(ids []int64, word func(id int64) uint64) device.Buffer {
	all := make([]kernels.Found, len(ids))
	for k, id := range ids {
		all[k] = kernels.Found{Word: word(id), Position: uint32(k)}
	}
	return r.put(asBytes(all))
}

// missFetch fetches rows from the host tier, in order, beside a plain kernel that reads uncompressed rows in order.
func (r *runner) missFetch(tier *transfer.Tier) {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, r.o.Batch)
	tierRows, codec, err := tier.Attach(r.d)
	must(err)
	defer transfer.Detach(r.d, tierRows, codec)
	t := r.normalRows()
	out := r.alloc(int64(batch * rowBytes))
	counters := r.put(asBytes([]kernels.Counters{{Misses: uint32(batch)}}))
	buckets := r.alloc(kernels.OrderBytes)
	ids := r.batches(func(set uint64) []int64 { return randomRows(batch, 0, int64(rows), set) })
	var orders, fetches [sets]device.Kernel
	for i := range orders {
		found := r.found(ids.numbers[i], func(id int64) uint64 { return uint64(id) })
		ordered := r.alloc(found.Size())
		orders[i] = &kernels.Order{Found: found, Counters: counters, Ordered: ordered, Pages: kernels.Pages{Buckets: buckets, Tier: tierRows}}
		fetches[i] = &kernels.Fetch{Misses: ordered, Counters: counters, Tier: tierRows, Codec: codec, Out: out}
	}
	plain := r.launches(r.sorted(ids).plain(t.host, out, rowBytes))
	fetch := r.time(func(i int) error {
		return errors.Join(r.stream.Launch(orders[i%sets]), r.stream.Launch(fetches[i%sets]))
	})
	check(r.d, "fetch", out, t.host.Bytes(), ids.last(r.o.Runs), rowBytes)
	bytes, total := float64(batch*rowBytes)/1e9, tier.Totals()
	r.add(Result{
		Case: "miss-fetch", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch, Value: bytes / fetch,
		Unit: "GB/s", Baseline: SortedZeroCopy + ", uncompressed", BaselineValue: bytes / plain,
		Compression: float64(total.RawBytes) / float64(total.StoredBytes),
	})
}
