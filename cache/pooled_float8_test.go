package cache_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// float8Value is what a value means, by the definitions of e4m3 and e5m2.
func float8Value(v byte, of dtype.Type) float64 {
	exponentBits, bias := 4, 7
	if of == dtype.Float8E5M2 {
		exponentBits, bias = 5, 15
	}
	fractionBits := 7 - exponentBits
	exponent, fraction, ones := int(v&0x7f)>>fractionBits, float64(int(v)&(1<<fractionBits-1))/float64(int(1)<<fractionBits), int(1)<<exponentBits-1
	var x float64
	switch {
	case of == dtype.Float8E4M3FN && v&0x7f == 0x7f, of == dtype.Float8E5M2 && exponent == ones && fraction != 0:
		return math.NaN()
	case of == dtype.Float8E5M2 && exponent == ones:
		x = math.Inf(1)
	case exponent == 0:
		x = math.Ldexp(fraction, 1-bias)
	default:
		x = math.Ldexp(1+fraction, exponent-bias)
	}
	if v >= 0x80 {
		x = -x
	}
	return x
}

// float8Rows are rows of a format, all values and many scales among them, and the same elements as float32.
func float8Rows(r *rand.Rand, f cache.Float8, rows, columns int) (data, wide []byte, rowBytes int) {
	blocks := 0
	if f.Block > 0 {
		blocks = columns / f.Block
	}
	rowBytes = columns + blocks*f.Scales.Size()
	data, wide = make([]byte, rows*rowBytes), make([]byte, rows*columns*4)
	factor := f.Factor
	if factor == 0 {
		factor = 1
	}
	for row := range rows {
		in := data[row*rowBytes:][:rowBytes]
		for i := range columns {
			if in[i] = byte(row*columns + i); row%3 == 0 { // rows that codecs shorten
				in[i] = 0x38 + byte(r.IntN(4))
			}
		}
		scales := make([]float32, blocks)
		for k := range scales {
			if f.Scales == dtype.Float32 {
				scales[k] = float32(r.NormFloat64())
				binary.LittleEndian.PutUint32(in[columns+4*k:], math.Float32bits(scales[k]))
				continue
			}
			if in[columns+k] = byte(120 + r.IntN(16)); row%4 == 0 {
				in[columns+k] = byte(row/4*blocks + k)
			}
			if scales[k] = float32(math.Ldexp(1, int(in[columns+k])-127)); in[columns+k] == 255 {
				scales[k] = float32(math.NaN())
			}
		}
		for i := range columns {
			x := float32(float8Value(in[i], f.Values))
			if blocks > 0 {
				x *= scales[i/f.Block]
			}
			binary.LittleEndian.PutUint32(wide[(row*columns+i)*4:], math.Float32bits(x*factor))
		}
	}
	return data, wide, rowBytes
}

// float8Formats are formats and numbers of columns.
var float8Formats = []struct {
	cache.Float8
	columns int
}{
	{cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: 32}, 256}, // rows of n-gram tables
	{cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: 32}, 96},
	{cache.Float8{Values: dtype.Float8E4M3FN, Factor: 0.0375}, 160},
	{cache.Float8{Values: dtype.Float8E5M2}, 33},
	{cache.Float8{Values: dtype.Float8E5M2, Scales: dtype.Float32, Block: 8, Factor: 3}, 104},
	{cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float32, Block: 128}, 512},
}

func name8(f cache.Float8, columns int) string {
	return fmt.Sprintf("%d %s, %d %s", columns, f.Values, f.Block, f.Scales)
}

// TestGather_PooledFloat8 compares sums of float8 rows with those of the same elements as float32, to the bit, with all values and all scales.
func TestGather_PooledFloat8(t *testing.T) {
	race.SkipSequential(t)
	for _, f := range float8Formats {
		for _, codec := range []cache.Codec{"none", "auto"} {
			t.Run(fmt.Sprint(codec, " ", name8(f.Float8, f.columns)), func(t *testing.T) {
				const rows = 400
				r := rand.New(rand.NewPCG(8, 8))
				data, wide, rowBytes := float8Rows(r, f.Float8, rows, f.columns)
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "features", data, rowBytes)}, Budget: 12_000, Codec: codec, Devices: cache.DeviceOptions{Backend: "host"},
					Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
				})
				all := make([]int64, rows)
				for i := range all {
					all[i] = int64(i)
				}
				for round := range 15 {
					p, ids := drawPooling(r, rows, []int{0, 1, 40, 700, 3000}[r.IntN(5)])
					if round == 0 {
						p, ids = pooling{Pooling: cache.Pooling{Bag: 1}}, all
					}
					p.Float8 = f.Float8
					size, _ := pooledOut(&p, dtype.Float32, f.columns, len(ids))
					out := make([]byte, size)
					if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, wide, dtype.Float32, f.columns, ids, &p, out, fmt.Sprint("round ", round))
				}
			})
		}
	}
}

// TestGather_AsFloat8 converts a table whose type is float8.
func TestGather_AsFloat8(t *testing.T) {
	const rows, columns = 300, 40
	r := rand.New(rand.NewPCG(2, 8))
	for _, of := range []dtype.Type{dtype.Float8E4M3FN, dtype.Float8E5M2} {
		data, wide, rowBytes := float8Rows(r, cache.Float8{Values: of}, rows, columns)
		table, err := fromBytes(t, "features", data, rowBytes).WithDType(of)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 8000, Devices: cache.DeviceOptions{Backend: "host"}})
		ids := zipf(r, rows, 500)
		for _, as := range floats {
			out := make([]byte, len(ids)*columns*as.Size())
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out, As: as}); err != nil {
				t.Fatal(err)
			}
			checkPooled(t, wide, dtype.Float32, columns, ids, &pooling{Pooling: cache.Pooling{Bag: 1}, Output: as}, out, as.String())
		}
	}
}

func TestGather_PooledFloat8BadRows(t *testing.T) {
	float, err := cache.FromBytes("floats", dtype.Float32, make([]byte, 1320), 132)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "bytes", make([]byte, 320), 32), float}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "host"}})
	good := cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: 16}
	with := func(change func(*cache.Float8)) cache.Float8 {
		f := good
		change(&f)
		return f
	}
	for want, x := range map[string]struct {
		table int
		f     cache.Float8
	}{
		"rows (32 bytes) of table bytes must be a multiple of 17 bytes: 16 values and their scale": {0, good},
		"elements (float32) of table floats must be uint8 or float8_e4m3fn":                        {1, good},
		"float8 values (float16) must be float8_e4m3fn or float8_e5m2":                             {0, with(func(f *cache.Float8) { f.Values = dtype.Float16 })},
		"scales (float16) of float8 values must be float8_e8m0fnu or float32 with a block":         {0, with(func(f *cache.Float8) { f.Scales = dtype.Float16 })},
		"scales (invalid) of float8 values must be":                                                {0, with(func(f *cache.Float8) { f.Scales = 0 })},
		"scales (float8_e8m0fnu) of float8 values must be":                                         {0, with(func(f *cache.Float8) { f.Block = 0 })},
		"block (12 values) must be a multiple of 8":                                                {0, with(func(f *cache.Float8) { f.Block = 12 })},
		"block (-8 values) must be a multiple of 8":                                                {0, with(func(f *cache.Float8) { f.Block = -8 })},
		"block (40 values) must be a multiple of 8, and no longer than a row":                      {0, with(func(f *cache.Float8) { f.Block = 40 })},
	} {
		out := bytes.Repeat([]byte{0xee}, 128)
		err := c.Gather(ctx, cache.Request{Table: x.table, Rows: []int64{1}, Out: out, Float8: x.f, Pool: &cache.Pooling{Bag: 1}})
		if !errors.Is(err, cache.ErrPooling) || !strings.Contains(err.Error(), want) || len(bytes.Trim(out, "\xee")) != 0 {
			t.Errorf("%v, want %s, and no output", err, want)
		}
	}
}
