package registry_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestFloat8_Savings quantises embeddings by blocks of 32 that share a scale, a power of two, and holds what the best codec saves of the elements and of rows of
// scales, and what parts saves of elements with their scales.
func TestFloat8_Savings(t *testing.T) {
	const columns, rows = 256, 2000
	r := rand.New(rand.NewPCG(1, 2))
	trained := func() []byte { // ncf_user's rows, as many in a row as it takes
		table, err := dataset.Load("../../../shared/data/ncf_user.npy")
		if err != nil {
			t.Skipf("real tables are not here: %v", err)
		}
		return bytes.Clone(table.Data) // it is mapped
	}
	normal := func() (data []byte) {
		for range rows * columns {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())))
		}
		return data
	}
	for _, c := range []struct {
		name        string
		of          dtype.Type
		cast        string
		data        func() []byte
		least, with float64 // of the elements, and with their scales
	}{
		{"N(0,1)", dtype.Float8E4M3FN, "f8e4m3/e8m0:32", normal, 16, 17}, {"ncf_user", dtype.Float8E4M3FN, "f8e4m3/e8m0:32", trained, 16, 18},
		{"N(0,1)", dtype.Float8E5M2, "f8e5m2/e8m0:32", normal, 28.5, 28.5}, {"ncf_user", dtype.Float8E5M2, "f8e5m2/e8m0:32", trained, 28.5, 28.5},
	} {
		t.Run(fmt.Sprintf("%v/%s", c.of, c.name), func(t *testing.T) {
			data := c.data()
			data = data[:len(data)/(4*columns)*4*columns]
			table, err := (&dataset.Table{DType: dtype.Float32, Rows: len(data) / (4 * columns), RowBytes: 4 * columns, Data: data}).Cast(c.cast)
			if err != nil {
				t.Fatal(err)
			}
			if got := best(t, table.Data, table.RowBytes, table.DType, "parts"); got < c.with {
				t.Errorf("elements and scales: saving %.2f %%, want at least %g %%", got, c.with)
			}
			var values, scales []byte
			for i := range table.Rows {
				row := table.Row(int64(i))
				values, scales = append(values, row[:columns]...), append(scales, row[columns:]...)
			}
			if got := best(t, values, columns, c.of); got < c.least {
				t.Errorf("elements: saving %.2f %%, want at least %g %%", got, c.least)
			}
			if got := best(t, scales, len(scales)/table.Rows*8, dtype.Float8E8M0FNU); got < 30 {
				t.Errorf("scales of 8 rows: saving %.2f %%, want at least 30 %%", got)
			}
		})
	}
}

// best returns what the best of some codecs saves, in %; of all, if none is named.
func best(t *testing.T, data []byte, rowBytes int, of dtype.Type, names ...string) (most float64) {
	data = data[:len(data)/rowBytes*rowBytes]
	if names == nil {
		names = registry.Concrete()
	}
	for _, name := range names {
		c, err := registry.Train(name, data, rowBytes, of)
		if errors.Is(err, codec.ErrDType) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		stored, dst, row := 0, make([]byte, c.EncodeBound()), make([]byte, rowBytes)
		for i := 0; i < len(data); i += rowBytes {
			n, err := c.Encode(dst, data[i:][:rowBytes])
			if err != nil {
				n = rowBytes
			} else if _, err := c.Decode(row, dst[:n]); err != nil || string(row) != string(data[i:][:rowBytes]) {
				t.Fatalf("%s: row at %d does not come back: %v", name, i, err)
			}
			stored += n
		}
		saving := 100 * (1 - float64(stored)/float64(len(data)))
		t.Logf("%v, rows of %d B: %s saves %.2f %%", of, rowBytes, name, saving)
		most = max(most, saving)
	}
	return most
}

// TestPick_Float8Rows goes by what GPUs decode of float8 values with their scales, not of float32 rows: zipnn takes longer than parts there.
func TestPick_Float8Rows(t *testing.T) {
	table, err := dataset.Normal(6000, 256, 1)
	if err != nil {
		t.Fatal(err)
	}
	if table, err = table.Cast("f8e4m3/e8m0:32"); err != nil {
		t.Fatal(err)
	}
	_, choice, err := registry.Pick(table.Data, table.RowBytes, table.DType, registry.Terms{Budget: int64(len(table.Data))})
	if err != nil {
		t.Fatal(err)
	}
	hit := map[string]float64{}
	for _, c := range choice.Candidates {
		hit[c.Codec] = c.HitNanoseconds
	}
	if hit["ibp4"] <= 0 || hit["parts"] <= hit["ibp4"] || hit["zipnn"] <= hit["parts"] || choice.Codec == "zipnn" {
		t.Errorf("%s was picked; ns to decode a hit: %v", choice.Codec, hit)
	}
}
