package rank

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// unequal returns rows of normal numbers, bfloat16 or float32, whose columns have different scales, and means up to two deviations away
// from zero.
func unequal(seed uint64, rows, columns, elementBytes int) []byte {
	r := rand.New(rand.NewPCG(seed, 9))
	scale, mean := make([]float64, columns), make([]float64, columns)
	for j := range columns {
		scale[j], mean[j] = math.Exp2(3*r.NormFloat64()), 4*r.Float64()-2
	}
	var b []byte
	for range rows {
		for j := range columns {
			u := math.Float32bits(float32((r.NormFloat64() + mean[j]) * scale[j]))
			if elementBytes == 2 {
				b = binary.LittleEndian.AppendUint16(b, uint16((u+0x7fff+u>>16&1)>>16))
			} else {
				b = binary.LittleEndian.AppendUint32(b, u)
			}
		}
	}
	return b
}

// TestTrain_Bases trains on columns of unequal scales and signs: bases save what one ranking for all of them cannot, and training without
// them, by shorter samples, says how much that is.
func TestTrain_Bases(t *testing.T) {
	for _, c := range []struct {
		elementBytes, columns int
		more                  float64 // points that bases must save
	}{{2, 64, 7}, {2, 75, 7}, {2, 256, 7}, {4, 64, 3.5}, {4, 75, 3.5}, {4, 512, 3.5}} {
		rowBytes := c.columns * c.elementBytes
		table := unequal(1, 400, c.columns, c.elementBytes)
		saving := func(sample []byte) (float64, *Codec) {
			codec, err := Train(sample, rowBytes, c.elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			return 100 * (1 - float64(codectest.RoundTrip(t, codec, table))/float64(len(table))), codec
		}
		without, plain := saving(table[:(leastBasedRows-1)*rowBytes])
		with, based := saving(table)
		t.Logf("elements of %d bytes, %d columns: %.2f %% without bases, %.2f with: rotated by %d, symbols of %d bits, digits %v",
			c.elementBytes, c.columns, without, with, based.shape.Rotate, based.shape.SymbolBits, based.shape.Digits)
		if plain.shape.Bases != nil || based.shape.Bases == nil || with < without+c.more {
			t.Errorf("elements of %d bytes, %d columns: %.2f %% without bases (%v), %.2f with (%v), want %.1f points more", c.elementBytes,
				c.columns, without, plain.shape.Bases == nil, with, based.shape.Bases != nil, c.more)
		}
		if form := based.DeviceForm(); int64(len(form.Metadata)) != based.MetadataBytes() {
			t.Errorf("device metadata have %d bytes, MetadataBytes %d", len(form.Metadata), based.MetadataBytes())
		}
	}
	equal := normal(1, 400, 128, 2)
	if c, err := Train(equal, 256, 2); err != nil || c.shape.Bases != nil {
		t.Errorf("columns of equal statistics got bases (%v)", err)
	}
	if c, err := Train(unequal(2, 300, 2100, 2), 4200, 2); err != nil || c.shape.Bases != nil {
		t.Errorf("rows of 4200 bytes got bases (%v)", err)
	}
}

// TestTrain_BasedBytes says that shapes with bases of whole quads are those that GPUs have faster decoders for.
func TestTrain_BasedBytes(t *testing.T) {
	c, err := Train(unequal(3, 400, 256, 2), 512, 2)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.shape; s.Bases == nil || s.SymbolBits != 8 || len(s.Digits) < 2 || s.Digits[0] > 2 || s.Digits[1] > 2 {
		t.Errorf("symbols of %d bits, digits %v, want those of RankBytes", s.SymbolBits, s.Digits)
	}
}

func TestMetadata_Bases(t *testing.T) {
	s := goldenShape
	s.Bases = [][]uint16{{1, 0x8000, 0xffff, 7, 0}, {2, 3, 4, 5, 6}}
	c, err := New(11, s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.shape; !slices.EqualFunc(got.Bases, s.Bases, slices.Equal) || !slices.Equal(got.Symbols, s.Symbols) || got.Rotate != s.Rotate {
		t.Errorf("metadata read back as %+v", got)
	}
	body := bytes.Clone(b[:len(b)-4])
	for cut := metadataHeader; cut < len(body); cut++ {
		if _, err := parse(body[:cut]); err == nil {
			t.Errorf("metadata cut to %d of %d bytes are taken", cut, len(body))
		}
	}
}
