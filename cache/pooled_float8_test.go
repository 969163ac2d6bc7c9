package cache_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
)

// float8Value is what a value and a scale mean, by the definition of e4m3 and e8m0.
func float8Value(v, scale byte) float64 {
	if v&0x7f == 0x7f || scale == 255 {
		return math.NaN()
	}
	x := 0.0
	if exponent := int(v >> 3 & 15); exponent == 0 {
		x = float64(v&7) / 8 * math.Pow(2, -6)
	} else {
		x = (1 + float64(v&7)/8) * math.Pow(2, float64(exponent-7))
	}
	if v >= 0x80 {
		x = -x
	}
	return x * math.Pow(2, float64(scale)-127)
}

// TestGatherPooled_Float8 compares sums of float8 rows with those of the same elements as float32, to the bit, with all values and all scales.
func TestGatherPooled_Float8(t *testing.T) {
	const rows, columns, rowBytes = 400, 96, 99
	r := rand.New(rand.NewPCG(8, 8))
	data, wide := make([]byte, rows*rowBytes), make([]byte, rows*columns*4)
	for row := range rows {
		in := data[row*rowBytes:][:rowBytes]
		for i := range columns {
			in[i] = byte(row*columns + i)
		}
		for k := range 3 {
			if in[columns+k] = byte(120 + r.IntN(16)); row%4 == 0 {
				in[columns+k] = byte(row/4*3 + k)
			}
		}
		for i := range columns {
			x := float32(float8Value(in[i], in[columns+i/32]))
			binary.LittleEndian.PutUint32(wide[(row*columns+i)*4:], math.Float32bits(x))
		}
	}
	for _, codec := range []cache.Codec{"none", "auto"} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "features", data, rowBytes)}, Budget: 12_000, Codec: codec, Devices: cache.DeviceOptions{Backend: "host"},
			Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
		})
		all := make([]int64, rows)
		for i := range all {
			all[i] = int64(i)
		}
		for round := range 40 {
			p, ids := drawPooling(r, rows, []int{0, 1, 40, 700, 5000}[r.IntN(5)])
			if round == 0 {
				p, ids = cache.Pooling{Bag: 1}, all
			}
			p.Float8 = true
			width := 4
			if p.Output != 0 {
				width = p.Output.Size()
			}
			out := make([]byte, len(bagsOf(&p, len(ids)))*columns*width)
			if err := c.GatherPooled(ctx, 0, ids, p, out); err != nil {
				t.Fatal(err)
			}
			checkPooled(t, wide, dtype.Float32, columns, ids, &p, out, string(codec))
		}
	}
}

func TestGatherPooled_Float8BadRows(t *testing.T) {
	float, err := cache.FromBytes("floats", dtype.Float32, make([]byte, 1320), 132)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "bytes", make([]byte, 320), 32), float}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "host"}})
	for table, want := range []string{"rows (32 bytes, uint8) of table bytes must be uint8, a multiple of 33 bytes", "rows (132 bytes, float32) of table floats must be uint8"} {
		out := bytes.Repeat([]byte{0xee}, 128)
		err := c.GatherPooled(ctx, table, []int64{1}, cache.Pooling{Bag: 1, Float8: true}, out)
		if !errors.Is(err, cache.ErrPooling) || !strings.Contains(err.Error(), want) || len(bytes.Trim(out, "\xee")) != 0 {
			t.Errorf("%v, want %s, and no output", err, want)
		}
	}
}
