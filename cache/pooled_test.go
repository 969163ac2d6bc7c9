package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

var floats = []dtype.Type{dtype.Float32, dtype.Float16, dtype.BFloat16}

// value returns element i as a number.
func value(data []byte, i int, of dtype.Type) float32 {
	switch of {
	case dtype.Float32:
		return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	case dtype.BFloat16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
	}
	x := binary.LittleEndian.Uint16(data[2*i:])
	sign, exponent, fraction := 1-2*float64(x>>15), int(x>>10&31), float64(x&1023)
	switch {
	case exponent == 31 && fraction != 0:
		return float32(math.NaN())
	case exponent == 31:
		return float32(sign * math.Inf(1))
	case exponent == 0:
		return float32(math.Copysign(math.Ldexp(fraction, -24), sign))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// rounded returns the bits of an element, found by trying its neighbours.
func rounded(x float32, as dtype.Type) []byte {
	if as == dtype.Float32 {
		if x != x {
			x = math.Float32frombits(0x7fc00000)
		}
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
	}
	infinity := uint16(0x7f80)
	if as == dtype.Float16 {
		infinity = 0x7c00
	}
	if x != x {
		return binary.LittleEndian.AppendUint16(nil, infinity|(infinity&-infinity)>>1)
	}
	at := func(bits uint16) float64 {
		if bits == infinity { // for rounding, one step beyond the largest
			return 2*float64(value([]byte{byte(infinity - 1), byte((infinity - 1) >> 8)}, 0, as)) - float64(value([]byte{byte(infinity - 2), byte((infinity - 2) >> 8)}, 0, as))
		}
		return float64(value([]byte{byte(bits), byte(bits >> 8)}, 0, as))
	}
	size := math.Abs(float64(x))
	low, high := uint16(0), infinity // at(low) ≤ size, unless size is larger than all
	for low+1 < high {
		if middle := (low + high) / 2; at(middle) <= size {
			low = middle
		} else {
			high = middle
		}
	}
	bits := low
	if below, above := size-at(low), at(high)-size; above < below || above == below && low&1 != 0 {
		bits = high
	}
	if math.Signbit(float64(x)) {
		bits |= 0x8000
	}
	return binary.LittleEndian.AppendUint16(nil, bits)
}

// floatTable returns rows of floats that compress, among them random ones. With odd, some elements are NaN, infinities, zeros of either sign and
// subnormals.
func floatTable(rows, columns int, of dtype.Type, odd bool, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	var b []byte
	for range rows {
		noise := r.IntN(16) == 0
		for range columns {
			x := float32(r.NormFloat64())
			if odd && r.IntN(30) == 0 {
				x = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1e-40, -3e-7, 60000}[r.IntN(8)]
			}
			if noise {
				x = math.Float32frombits(r.Uint32()&^0x7f800000 | uint32(117+r.IntN(20))<<23)
			}
			b = append(b, rounded(x, of)...)
		}
	}
	return b
}

// pooled is what a pooled Gather has to write of the positions from to to-1, a bag, by the documented order, one operation at a time. It returns the sums in float64
// and those of absolute values too.
func pooled(data []byte, of dtype.Type, columns int, rows []int64, p *pooling, bag, from, to int) (out []byte, exact, size []float64) {
	output := p.Output
	if output == 0 {
		output = of
	}
	for column := range columns {
		var group, total, run float32
		var wide, absolute float64
		n, runs, groups := 0, 0, 0
		for k := from; k < to; k += 1024 {
			runs = 0
			for j := k; j < min(k+1024, to); j += 32 {
				in := 0
				for i := j; i < min(j+32, to); i++ {
					if p.Padding && rows[i] == p.PaddingRow {
						continue
					}
					x := value(data, int(rows[i])*columns+column, of)
					wide += float64(x)
					absolute += math.Abs(float64(x))
					if len(p.Weights) > 0 {
						wide += (float64(p.Weights[i]) - 1) * float64(x)
						absolute += (math.Abs(float64(p.Weights[i])) - 1) * math.Abs(float64(x))
						x = float32(p.Weights[i] * x)
					}
					switch {
					case p.Mode == cache.PoolMax && in == 0 && j > from:
						if run = float32(math.Inf(-1)); x > run {
							run = x
						}
					case in == 0:
						run = x
					case p.Mode != cache.PoolMax:
						run += x
					case x > run:
						run = x
					}
					in++
					n++
				}
				group = join(group, run, runs, in, p.Mode)
				runs += min(in, 1)
			}
			total = join(total, group, groups, runs, p.Mode)
			groups += min(runs, 1)
		}
		switch {
		case n == 0:
			total = 0
		case p.Mode == cache.PoolMean:
			total /= float32(n)
			wide /= float64(n)
			absolute /= float64(n)
		}
		out = append(out, rounded(total, output)...)
		exact, size = append(exact, wide), append(size, absolute)
	}
	return out, exact, size
}

func join(to, of float32, before, n int, mode cache.PoolMode) float32 {
	switch {
	case n == 0:
		return to
	case before == 0:
		return of
	case mode != cache.PoolMax:
		return to + of
	case of > to:
		return of
	}
	return to
}

// bagsOf returns where the bags of a batch begin and end.
func bagsOf(p *pooling, rows int) (bounds [][2]int) {
	if p.Bag > 0 {
		for at := 0; at < rows; at += p.Bag {
			bounds = append(bounds, [2]int{at, at + p.Bag})
		}
		return bounds
	}
	for i, at := range p.Offsets {
		end := rows
		if i+1 < len(p.Offsets) {
			end = int(p.Offsets[i+1])
		} else if p.LastOffset {
			break
		}
		bounds = append(bounds, [2]int{int(at), end})
	}
	return bounds
}

// drawPooling returns a Pooling for a batch of about n rows of a table, and the row numbers.
func drawPooling(r *rand.Rand, tableRows, n int) (pooling, []int64) {
	p := pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(r.IntN(3))}, Output: append(floats, 0)[r.IntN(4)]}
	if r.IntN(3) == 0 {
		p.Bag = []int{1, 2, 10, 31, 32, 33, 64, 100, 1100}[r.IntN(9)]
		n = n / p.Bag * p.Bag
	} else {
		at := 0
		for at < n && r.IntN(200) != 0 {
			p.Offsets = append(p.Offsets, int64(at))
			at += []int{0, 0, 1, 2, 10, 32, 33, 50, 1024, 1025, 3000}[r.IntN(8+r.IntN(4))]
		}
		if p.LastOffset = r.IntN(2) == 0; p.LastOffset || len(p.Offsets) == 0 {
			p.Offsets = append(p.Offsets, int64(min(at, n)))
		}
		p.LastOffset = p.LastOffset && len(p.Offsets) > 1
	}
	rows := zipf(r, tableRows, n)
	if p.Mode == cache.PoolSum && r.IntN(2) == 0 {
		for range rows {
			p.Weights = append(p.Weights, float32(r.NormFloat64()))
		}
	}
	if r.IntN(3) == 0 {
		p.Padding, p.PaddingRow = true, int64(r.IntN(4))
		if len(rows) > 70 && r.IntN(2) == 0 {
			for i := range 40 {
				rows[i] = p.PaddingRow
			}
		}
	}
	return p, rows
}

// checkPooled compares an output with pooled, to the bit, and with float64 sums where all is finite.
func checkPooled(t *testing.T, data []byte, of dtype.Type, columns int, rows []int64, p *pooling, out []byte, what string) {
	t.Helper()
	output := p.Output
	if output == 0 {
		output = of
	}
	stride := int(p.Stride)
	if stride == 0 {
		stride = columns * output.Size()
	}
	for b, at := range bagsOf(p, len(rows)) {
		want, exact, size := pooled(data, of, columns, rows, p, b, at[0], at[1])
		got := out[b*stride:][:len(want)]
		if !bytes.Equal(got, want) {
			for i := range columns {
				if x, y := value(got, i, output), value(want, i, output); x != y && !(x != x && y != y) {
					t.Fatalf("%s: bag %d (%d to %d) element %d is %g, want %g", what, b, at[0], at[1], i, x, y)
				}
			}
			t.Fatalf("%s: bag %d (%d to %d) has other bits: %x, want %x", what, b, at[0], at[1], got, want)
		}
		if output != dtype.Float32 || p.Mode == cache.PoolMax {
			continue
		}
		for i := range columns {
			x := float64(value(got, i, output))
			limit := float64(at[1]-at[0]+1) * 0x1p-24 * size[i]
			if d := math.Abs(x - exact[i]); d > limit+1e-44 && size[i]*float64(at[1]-at[0]) < math.MaxFloat32 { // a mean's sum is finite
				t.Fatalf("%s: bag %d element %d is %g, %g from the sum in float64, more than %g", what, b, i, x, d, limit)
			}
		}
	}
}

// TestGather_PooledEqualsDefinition compares pooled batches of every kind with a plain execution of the documented order.
func TestGather_PooledEqualsDefinition(t *testing.T) {
	race.SkipSequential(t)
	const rows = 400
	for _, of := range floats {
		for i, o := range []cache.Options{
			{Codec: "none"}, {Codec: "ibp4", Host: cache.HostOptions{Tier: cache.Packed}}, {Codec: "rank", Devices: cache.DeviceOptions{Count: 3}},
			{Codec: "auto", Host: cache.HostOptions{Workers: 1}},
		} {
			for _, columns := range []int{1, 24, 100} {
				name := fmt.Sprintf("%s/%s/%d", of, o.Codec, columns)
				t.Run(name, func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(columns), uint64(i)))
					data := floatTable(rows, columns, of, true, 7)
					table, err := cache.FromBytes("features", of, data, columns*of.Size())
					if err != nil {
						t.Fatal(err)
					}
					o := o
					o.Tables, o.Budget = []cache.Table{table}, max(3000, int64(len(data)/3))
					o.Admission = cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))}
					c := newCache(t, o)
					for round := range 5 {
						p, ids := drawPooling(r, rows, []int{0, 1, 40, 700, 5000}[r.IntN(5)])
						output := p.Output
						if output == 0 {
							output = of
						}
						width, bags := columns*output.Size(), len(bagsOf(&p, len(ids)))
						stride := width
						if r.IntN(3) == 0 {
							stride += 3 * output.Size()
							p.Stride = int64(stride)
						}
						out := bytes.Repeat([]byte{0xee}, max(0, (bags-1)*stride+width*min(bags, 1)))
						before := stats(t, c)
						if round%2 == 0 {
							err = c.Gather(ctx, p.host(0, ids, out))
						} else {
							narrow := make([]int32, len(ids))
							for i, id := range ids {
								narrow[i] = int32(id)
							}
							q := p.host(0, nil, out)
							q.Rows32 = narrow
							err = c.On(r.IntN(c.Devices())).Gather(ctx, q)
						}
						if err != nil {
							t.Fatal(err)
						}
						checkPooled(t, data, of, columns, ids, &p, out, fmt.Sprintf("round %d", round))
						for b := 1; b < bags; b++ {
							for _, x := range out[(b-1)*stride+width : b*stride] {
								if x != 0xee {
									t.Fatalf("round %d: bytes between bags %d and %d were written", round, b-1, b)
								}
							}
						}
						looked := 0
						for _, at := range bagsOf(&p, len(ids)) {
							for _, id := range ids[at[0]:at[1]] {
								if !p.Padding || id != p.PaddingRow {
									looked++
								}
							}
						}
						after := stats(t, c)
						if got := after.Tables[0].Lookups - before.Tables[0].Lookups; got != int64(looked) {
							t.Fatalf("round %d: %d hits and misses, want %d", round, got, looked)
						}
					}
				})
			}
		}
	}
}

// TestGather_PooledOneBag sums a million rows, on one processor and on several.
func TestGather_PooledOneBag(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 1000, 2
	data := floatTable(rows, columns, dtype.Float32, false, 1)
	r := rand.New(rand.NewPCG(1, 1))
	ids := zipf(r, rows, 1_000_000)
	for _, workers := range []int{1, 3} {
		table, err := cache.FromBytes("features", dtype.Float32, data, columns*4)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Codec: "none", Host: cache.HostOptions{Workers: workers}})
		for _, p := range []pooling{{Pooling: cache.Pooling{Offsets: []int64{0}}}, {Pooling: cache.Pooling{Bag: len(ids), Mode: cache.PoolMean}}, {Pooling: cache.Pooling{Offsets: []int64{0, 0, 3, 999_999}, Mode: cache.PoolMax}}} {
			out := make([]byte, len(bagsOf(&p, len(ids)))*columns*4)
			if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
				t.Fatal(err)
			}
			checkPooled(t, data, dtype.Float32, columns, ids, &p, out, fmt.Sprint(workers, " workers"))
		}
	}
}

func TestGather_PooledBadArguments(t *testing.T) {
	data := floatTable(10, 8, dtype.Float32, false, 1)
	table, err := cache.FromBytes("features", dtype.Float32, data, 32)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{table, fromBytes(t, "bytes", data, 32)}, Budget: 1 << 20})
	for _, test := range []struct {
		p     pooling
		table int
		rows  []int64
		out   int
		is    error
		want  string
	}{
		{pooling{}, 0, []int64{1}, 32, cache.ErrPooling, "rows (1) must be in bags: there are no offsets"},
		{pooling{Pooling: cache.Pooling{Bag: 2}}, 0, []int64{1, 2, 3}, 32, cache.ErrPooling, "rows (3) must be whole bags of 2"},
		{pooling{Pooling: cache.Pooling{Bag: -1}}, 0, []int64{1}, 32, cache.ErrPooling, "must be whole bags of -1"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Offsets: []int64{0}}}, 0, []int64{1}, 32, cache.ErrPooling, "offsets (1) must not come with bags of 1 rows"},
		{pooling{Pooling: cache.Pooling{Offsets: []int64{1}}}, 0, []int64{1}, 32, cache.ErrPooling, "the first offset (1) must be 0"},
		{pooling{Pooling: cache.Pooling{Offsets: []int64{0, 2}}}, 0, []int64{1}, 64, cache.ErrPooling, "offset (2) at position 1 must be 0 to 1"},
		{pooling{Pooling: cache.Pooling{Offsets: []int64{0, 2, 1}}}, 0, []int64{1, 2}, 96, cache.ErrPooling, "offset (1) at position 2 must be 2 to 2"},
		{pooling{Pooling: cache.Pooling{LastOffset: true}}, 0, []int64{}, 0, cache.ErrPooling, "offsets (none) must have the last bag's end"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Mode: 3}}, 0, []int64{1}, 32, cache.ErrPooling, "mode (3) must be sum, mean or max"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Weights: []float32{1, 2}}}, 0, []int64{1}, 32, cache.ErrPooling, "weights (2) must be one for each of 1 rows"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Mode: cache.PoolMax, Weights: []float32{1}}}, 0, []int64{1}, 32, cache.ErrPooling, "weights must come with sum"},
		{pooling{Pooling: cache.Pooling{Bag: 1}, Output: dtype.Int32}, 0, []int64{1}, 32, cache.ErrPooling, "output type (int32) must be float32"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Padding: true, PaddingRow: 10}}, 0, []int64{1}, 32, cache.ErrPooling, "padding row (10) must be 0 to 9"},
		{pooling{Pooling: cache.Pooling{Bag: 1, Padding: true, PaddingRow: -1}}, 0, []int64{1}, 32, cache.ErrPooling, "padding row (-1) must be at least 0"},
		{pooling{Pooling: cache.Pooling{Bag: 1}, Stride: 31}, 0, []int64{1}, 32, cache.ErrPooling, "distance of outputs (31 bytes) must be at least 32"},
		{pooling{Pooling: cache.Pooling{Bag: 1}, Stride: 34}, 0, []int64{1}, 32, cache.ErrPooling, "whole elements of float32"},
		{pooling{Pooling: cache.Pooling{Bag: 1}}, 1, []int64{1}, 32, cache.ErrPooling, "elements (uint8) of table bytes must be float32"},
		{pooling{Pooling: cache.Pooling{Bag: 1}}, 2, []int64{1}, 32, cache.ErrTable, "must be 0 to 1"},
		{pooling{Pooling: cache.Pooling{Bag: 1}}, 0, []int64{1, 10}, 64, cache.ErrRows, "row number (10) at position 1"},
		{pooling{Pooling: cache.Pooling{Bag: 1}}, 0, []int64{1, 2}, 32, cache.ErrOutput, "32 bytes for 2 bags of table features must be 64"},
		{pooling{Pooling: cache.Pooling{Bag: 2}}, 0, []int64{1, 2}, 64, cache.ErrOutput, "64 bytes for 1 bags of table features must be 32"},
	} {
		out := bytes.Repeat([]byte{0xee}, test.out)
		for _, several := range []bool{false, true} {
			err := c.Gather(ctx, test.p.host(test.table, test.rows, out))
			if several {
				good := pooling{Pooling: cache.Pooling{Bag: 1}}.host(0, []int64{1}, bytes.Repeat([]byte{0xee}, 32))
				err = c.Gather(ctx, good, test.p.host(test.table, test.rows, out))
				if good.Out[0] != 0xee {
					t.Errorf("%q: the other table's output was written", test.want)
				}
			}
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: %v, want %s", test.p, err, test.want)
			}
			if !bytes.Equal(out, bytes.Repeat([]byte{0xee}, test.out)) {
				t.Errorf("%q: output was written", test.want)
			}
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Gather(cancelled, cache.Request{Rows: []int64{1}, Out: make([]byte, 32), Pool: &cache.Pooling{Bag: 1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestEnqueue_PooledMinusOne: without a padding row, row number -1 of an enqueued batch is a fault that Wait reports, not padding that is left out
// silently.
func TestEnqueue_PooledMinusOne(t *testing.T) {
	const rows, columns = 100, 8
	data := floatTable(rows, columns, dtype.Float32, false, 7)
	table, err := cache.FromBytes("x", dtype.Float32, data, columns*4)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 4 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	out := make([]byte, 2*columns*4)
	gather := func(ids []int64, p pooling) error {
		b, err := c.On(0).Enqueue(ctx, 0, p.device(0, bytesOf(ids), device.HostBuffer(out)))
		if err != nil {
			return err
		}
		return b.Wait()
	}
	good := pooling{Pooling: cache.Pooling{Bag: 2}}
	if err := gather([]int64{5, 6, 7, 8}, good); err != nil {
		t.Fatal(err)
	}
	checkPooled(t, data, dtype.Float32, columns, []int64{5, 6, 7, 8}, &good, out, "good rows")
	if err := gather([]int64{5, -1, 7, 8}, good); !errors.Is(err, cache.ErrRows) {
		t.Errorf("without a padding row: %v, want ErrRows", err)
	}
	if err := gather([]int64{5, -1, 7, 8}, pooling{Pooling: cache.Pooling{Bag: 2, Padding: true, PaddingRow: -1}}); !errors.Is(err, cache.ErrPooling) {
		t.Errorf("with padding row -1: %v, want ErrPooling", err)
	}
}

// TestGather_FieldsOutOfPlace: fields of a request that would be ignored, or would change what it does, are refused by name.
func TestGather_FieldsOutOfPlace(t *testing.T) {
	data := floatTable(10, 8, dtype.Float32, false, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "bytes", data, 32)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "host"}})
	float8 := cache.Float8{Values: dtype.Float8E4M3FN}
	out, ids := make([]byte, 32), []int64{1}
	offsets := bytesOf([]int64{0})
	weights := device.HostBuffer(cache.AsBytes([]float32{1}))
	for _, test := range []struct {
		of   cache.Request
		is   error
		want string
	}{
		{cache.Request{Float8: float8}, cache.ErrPooling, "must come with As or Pool"},
		{cache.Request{Rows32: []int32{1, 2}}, cache.ErrRows, "Rows32 (2 row numbers) must be nil, as Rows has row numbers"},
		{cache.Request{DeviceRows32: true}, cache.ErrOutput, "DeviceRows32 (true) must be false in a Gather"},
		{cache.Request{Float8: float8, Pool: &cache.Pooling{Offsets: []int64{0}, DeviceOffsets: offsets}}, cache.ErrPooling, "DeviceOffsets (8 bytes) must be empty in a Gather"},
		{cache.Request{Float8: float8, Pool: &cache.Pooling{Bag: 1, DeviceWeights: weights}}, cache.ErrPooling, "DeviceWeights (4 bytes) must be empty in a Gather"},
	} {
		q := test.of
		q.Rows, q.Out = ids, out
		for several, err := range map[string]error{"one": c.Gather(ctx, q), "two": c.Gather(ctx, cache.Request{Rows: ids, Out: out}, q)} {
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", several, err, test.want)
			}
		}
		if q.Pool != nil || q.DeviceRows32 || q.Rows32 != nil {
			continue
		}
		q = test.of
		q.DeviceRows, q.DeviceOut = bytesOf(ids), device.HostBuffer(out)
		for several, requests := range map[string][]cache.Request{"one": {q}, "two": {q, q}} {
			if _, err := c.On(0).Enqueue(ctx, 0, requests...); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("enqueued, %s: %v, want %s", several, err, test.want)
			}
		}
	}
	if len(bytes.Trim(out, "\x00")) != 0 {
		t.Error("output was written")
	}
}

// TestGather_SeveralPooled sums bags of several tables, with row numbers of both widths, into columns of one output.
func TestGather_SeveralPooled(t *testing.T) {
	race.SkipSequential(t)
	r := rand.New(rand.NewPCG(5, 5))
	var tables []cache.Table
	var data [][]byte
	const tableCount, rows, columns, bags = 9, 300, 16, 50
	for i := range tableCount {
		d := floatTable(rows, columns, floats[i%3], false, uint64(i))
		table, err := cache.FromBytes(fmt.Sprint("table", i), floats[i%3], d, columns*floats[i%3].Size())
		if err != nil {
			t.Fatal(err)
		}
		tables, data = append(tables, table), append(data, d)
	}
	c := newCache(t, cache.Options{Tables: tables, Budget: 200_000})
	const stride = tableCount * columns * 4
	out := make([]byte, bags*stride)
	var batches []cache.Request
	var ids [][]int64
	for i := range tableCount {
		p := pooling{Pooling: cache.Pooling{Bag: 1 + i*5}, Output: dtype.Float32, Stride: stride}
		of := zipf(r, rows, bags*p.Bag)
		b := p.host(i, of, out[i*columns*4:(bags-1)*stride+(i+1)*columns*4])
		if i%2 == 1 {
			b.Rows, b.Rows32 = nil, make([]int32, len(of))
			for j, id := range of {
				b.Rows32[j] = int32(id)
			}
		}
		batches, ids = append(batches, b), append(ids, of)
	}
	if err := c.On(0).Gather(ctx, batches...); err != nil {
		t.Fatal(err)
	}
	for i, b := range batches {
		checkPooled(t, data[i], floats[i%3], columns, ids[i], &pooling{Pooling: *b.Pool, Output: b.As, Stride: b.Stride}, b.Out, fmt.Sprint("table ", i))
	}
	if err := c.Gather(ctx); err != nil {
		t.Error("no tables: ", err)
	}
}

// TestGather_AsRounds compares rows of other types with what each element rounds to, signs of zeros included, in Go memory and enqueued on a device.
func TestGather_AsRounds(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 200, 37
	r := rand.New(rand.NewPCG(6, 6))
	for _, of := range floats {
		data := floatTable(rows, columns, of, true, 9)
		c := newCache(t, cache.Options{Tables: []cache.Table{floatsOf(t, "features", of, data, columns)}, Budget: int64(len(data) / 2), Devices: cache.DeviceOptions{Backend: "host"}})
		ids := zipf(r, rows, 500)
		for _, as := range floats {
			for _, enqueued := range []bool{false, true} {
				out := make([]byte, len(ids)*columns*as.Size())
				err := error(nil)
				if enqueued {
					var b *cache.Batch
					if b, err = c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: bytesOf(ids), DeviceOut: device.HostBuffer(out), As: as}); err == nil {
						err = b.Wait()
					}
				} else {
					err = c.Gather(ctx, cache.Request{Rows: ids, Out: out, As: as})
				}
				if err != nil {
					t.Fatal(err)
				}
				checkRounded(t, data, of, columns, ids, as, out)
			}
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: nil, As: dtype.Int8}); !errors.Is(err, cache.ErrPooling) {
			t.Errorf("as int8: %v", err)
		}
	}
}

// checkRounded compares rows with their elements rounded to another type.
func checkRounded(t *testing.T, data []byte, of dtype.Type, columns int, ids []int64, as dtype.Type, out []byte) {
	t.Helper()
	for i, id := range ids {
		for j := range columns {
			want := rounded(value(data, int(id)*columns+j, of), as)
			if got := out[(i*columns+j)*as.Size():][:as.Size()]; !bytes.Equal(got, want) {
				t.Fatalf("%s as %s: row %d element %d is %x, want %x", of, as, id, j, got, want)
			}
		}
	}
}

// BenchmarkGather_Pooled compares with a Gather and a loop over the rows, by turns: times is how much longer these take, by medians.
func BenchmarkGather_Pooled(b *testing.B) {
	const rows, n = 100_000, 20_000
	for _, of := range []dtype.Type{dtype.Float32, dtype.BFloat16} {
		for _, columns := range []int{32, 64, 128, 256} {
			data := floatTable(rows, columns, of, false, 1)
			rowBytes := columns * of.Size()
			for _, codec := range []cache.Codec{"none", "ibp4", "rank"} {
				for _, hits := range []int{100, 80} {
					for _, workers := range []int{1, 0} {
						benchmarkPooled(b, data, of, rowBytes, codec, hits, workers, n)
					}
				}
			}
		}
	}
}

func benchmarkPooled(b *testing.B, data []byte, of dtype.Type, rowBytes int, codec cache.Codec, hits, workers, n int) {
	var c *cache.Cache
	open := func(o cache.Options) *cache.Cache {
		table, err := cache.FromBytes("features", of, data, rowBytes)
		if err != nil {
			b.Fatal(err)
		}
		o.Tables = []cache.Table{table}
		c, err := cache.New(o)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	r, columns := rand.New(rand.NewPCG(1, 1)), rowBytes/of.Size()
	ids := make([]int64, n)
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for _, bag := range []int{10, 40} {
		b.Run(fmt.Sprintf("%s/columns=%d/codec=%s/hits=%d/workers=%d/bag=%d", of, columns, codec, hits, workers, bag), func(b *testing.B) {
			if c == nil {
				o := cache.Options{Codec: codec, Host: cache.HostOptions{Workers: workers}, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Budget: int64(2*len(data) + 32<<20)}
				o.Admission.Training = func(yield func(int, []int64) bool) { // these are cached
					some := make([]int64, len(data)/rowBytes*hits/100)
					for i := range some {
						some[i] = int64(i)
					}
					yield(0, some)
				}
				if hits < 100 {
					whole := open(o)
					full := stats(b, whole)
					whole.Close()
					o.Budget = full.MetadataBytes + full.PayloadBytes*int64(hits)/100
				}
				c = open(o)
			}
			for i := range ids {
				ids[i] = r.Int64N(int64(len(data) / rowBytes))
			}
			out, all, sums := make([]byte, n/bag*rowBytes), make([]byte, n*rowBytes), make([]float32, n/bag*columns)
			var took [2][]float64
			b.SetBytes(int64(2 * n * rowBytes))
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out, Pool: &cache.Pooling{Bag: bag}}); err != nil {
					b.Fatal(err)
				}
				pooled := time.Now()
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: all}); err != nil {
					b.Fatal(err)
				}
				clear(sums)
				for i := range ids {
					sum, row := sums[i/bag*columns:][:columns], all[i*rowBytes:][:rowBytes]
					if of == dtype.Float32 {
						for j := range sum {
							sum[j] += math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:]))
						}
						continue
					}
					for j := range sum {
						sum[j] += math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*j:])) << 16)
					}
				}
				took[0], took[1] = append(took[0], pooled.Sub(start).Seconds()), append(took[1], time.Since(pooled).Seconds())
			}
			for i := range took {
				slices.Sort(took[i])
			}
			one, two := took[0][b.N/2], took[1][b.N/2]
			s := stats(b, c).Tables[0]
			b.ReportMetric(two/one, "times")
			b.ReportMetric(float64(n*rowBytes)/one/1e9, "pooled-GB/s")
			b.ReportMetric(float64(n*rowBytes)/two/1e9, "loop-GB/s")
			b.ReportMetric(100*float64(s.Hits)/float64(s.Lookups), "hit-%")
		})
	}
}

// pooledOut returns the bytes and the width of a pooled batch's output.
func pooledOut(p *pooling, of dtype.Type, columns, rows int) (size, width int) {
	output := p.Output
	if output == 0 {
		output = of
	}
	width = columns * output.Size()
	stride, bags := max(width, int(p.Stride)), len(bagsOf(p, rows))
	return max(0, (bags-1)*stride+width*min(bags, 1)), width
}

// pooling is a Pooling with what a request says of its output.
type pooling struct {
	cache.Pooling
	Output dtype.Type
	Stride int64
	Float8 cache.Float8
}

// host returns the request for rows in Go memory.
func (p pooling) host(table int, rows []int64, out []byte) cache.Request {
	return cache.Request{Table: table, Rows: rows, Out: out, As: p.Output, Stride: p.Stride, Float8: p.Float8, Pool: &p.Pooling}
}

// device returns the request for rows in memory of a device.
func (p pooling) device(table int, rows, out device.Buffer) cache.Request {
	return cache.Request{Table: table, DeviceRows: rows, DeviceOut: out, As: p.Output, Stride: p.Stride, Float8: p.Float8, Pool: &p.Pooling}
}
