package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/dtype"
)

const (
	// columnsPeriod is the bytes after which the columns of hit-columns have the same scale and mean again: the row lengths that it measures
	// are multiples of it.
	columnsPeriod = 128
	// scaledBytes is the bytes after which scaled rows have another scale.
	scaledBytes = 4096
)

// columns returns a pattern, for a table of so many bytes, of elements whose columns have different scales, and means up to two deviations away from zero. With scaled, rows are
// multiplied by exp(N(0,1)/2) besides, as vectors differ that are trained on things of different frequency.
func columns(bytes int64, elements dtype.Type, scaled bool) pattern {
	size := elements.Size()
	rng := rand.New(rand.NewPCG(1, 12))
	var scale, mean [columnsPeriod / 2]float64
	for j := range scale {
		scale[j], mean[j] = math.Exp2(3*rng.NormFloat64()), 4*rng.Float64()-2
		if elements == dtype.Float16 { // whose numbers reach from 6e-8 to 65504
			scale[j] = math.Exp2(rng.NormFloat64())
		}
	}
	p := emptyPattern(bytes)
	parallel(len(p)/scaledBytes, func(from, to int) {
		values := make([]byte, 0, 4*scaledBytes/size)
		for k := from; k < to; k++ {
			rng, row := rand.New(rand.NewPCG(uint64(k), 13)), 1.0
			if scaled {
				row = math.Exp(rng.NormFloat64() / 2)
			}
			values = values[:0]
			for i := range scaledBytes / size {
				j := i % (columnsPeriod / size)
				values = binary.LittleEndian.AppendUint32(values, math.Float32bits(float32((rng.NormFloat64()+mean[j])*scale[j]*row)))
			}
			copy(p[k*scaledBytes:], inType(values, elements))
		}
	})
	return p
}

// inType returns float32 values as elements of another type, rounded.
func inType(values []byte, elements dtype.Type) []byte {
	name := map[dtype.Type]string{dtype.BFloat16: "bf16", dtype.Float16: "f16"}[elements]
	t, err := (&dataset.Table{DType: dtype.Float32, Rows: 1, RowBytes: len(values), Data: values}).Cast(name)
	if err != nil {
		panic(err) // there are these two
	}
	return t.Data
}
