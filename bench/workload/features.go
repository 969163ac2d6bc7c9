package workload

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// featureBlock is the number of elements drawn from one stream, rounded down to
// whole rows. It is part of the output.
const featureBlock = 1 << 16

// Features generates a table of rows × cols float32 values, row after row, as
// little-endian bytes. Column j holds N(0,1) scaled by exp(z_j), z_j drawn from
// N(0,1) once per column. The same seed gives the same bytes.
func Features(rows, cols int, seed uint64) ([]byte, error) {
	return features(rows, cols, seed, columnScales)
}

// Normals generates such a table whose columns have factors of 1.
func Normals(rows, cols int, seed uint64) ([]byte, error) {
	return features(rows, cols, seed, func(cols int, _ uint64) []float64 { return slices.Repeat([]float64{1}, cols) })
}

func features(rows, cols int, seed uint64, scalesOf func(cols int, seed uint64) []float64) ([]byte, error) {
	if rows < 1 || cols < 1 || rows > math.MaxInt/4/cols {
		return nil, fmt.Errorf("workload: features: rows × columns (%d × %d) must be at least 1 × 1 and at most %d", rows, cols, math.MaxInt/4)
	}
	scales := scalesOf(cols, seed)
	table := make([]byte, rows*cols*4)
	blockRows := max(featureBlock/cols, 1)
	blocks := (rows-1)/blockRows + 1
	forEachBlock(blocks, func(b int) {
		r := rand.New(newStream(seed, purposeFeatures, uint64(b)))
		first, last := b*blockRows, min(rows-b*blockRows, blockRows)+b*blockRows
		for row := first; row < last; row++ {
			out := table[row*cols*4 : (row+1)*cols*4]
			for j, scale := range scales {
				v := float32(r.NormFloat64() * scale)
				binary.LittleEndian.PutUint32(out[j*4:], math.Float32bits(v))
			}
		}
	})
	return table, nil
}

// columnScales returns exp(z_j) for every column, rounded to float32 so that
// the last bit of the platform's exp does not show in the table.
func columnScales(cols int, seed uint64) []float64 {
	r := rand.New(newStream(seed, purposeScales, 0))
	scales := make([]float64, cols)
	for j := range scales {
		scales[j] = float64(float32(math.Exp(r.NormFloat64())))
	}
	return scales
}
