//go:build cuda && linux

package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// columnsPeriod is the bytes after which the columns of hit-columns have the same scale and mean again: the row lengths that it measures are
// multiples of it.
const columnsPeriod = 128

// hitColumns is hitDecode by rank of rows whose columns have different scales and means, so that rank has bases for them.
func (r *runner) hitColumns() {
	for _, of := range []struct {
		table func() *table
		dtype dtype.Type
		label string
	}{
		{func() *table { return r.shared(&r.columns, columns) }, dtype.Float32, "rank"},
		{func() *table { return r.shared(&r.halfColumns, halfColumns) }, dtype.BFloat16, "rank" + BFloat16Suffix},
		{func() *table { return r.shared(&r.float16Columns, float16Columns) }, dtype.Float16, "rank" + Float16Suffix},
	} {
		t := of.table()
		for _, rowBytes := range r.o.RowBytes {
			if rowBytes%columnsPeriod != 0 {
				continue
			}
			rows := whole(t.host.Bytes()[:min(t.host.Size(), codecTableBytes)], rowBytes)
			tier := get(transfer.Load(r.d, transfer.SourceOf(rows, rowBytes), transfer.Options{Codec: "rank", DType: of.dtype, Seed: seed}))
			err := try(func() { r.hitDecode(tier, t, "hit-columns", of.label, r.d) })
			r.free()
			tier.Close()
			must(err)
		}
	}
}

// inColumns returns what moves a normal number to column j: another scale, and a mean up to two deviations away from zero.
func inColumns() func(x float32, j int) float32 {
	rng := rand.New(rand.NewPCG(1, 12))
	var scale, mean [columnsPeriod / 2]float64
	for j := range scale {
		scale[j], mean[j] = math.Exp2(3*rng.NormFloat64()), 4*rng.Float64()-2
	}
	return func(x float32, j int) float32 { return float32((float64(x) + mean[j]) * scale[j]) }
}

// columns returns float32 elements of columnsPeriod / 4 columns.
func columns(bytes int64) pattern { return columnsOf(bytes, columnsPeriod/4) }

// float16Columns returns float16 elements of columnsPeriod / 2 columns.
func float16Columns(bytes int64) pattern { return columnsOf(bytes, columnsPeriod/2).float16() }

// columnsOf returns float32 elements of so many columns, at most columnsPeriod / 2.
func columnsOf(bytes int64, n int) pattern {
	p, inColumn := normals(bytes), inColumns()
	parallel(len(p)/columnsPeriod, func(from, to int) {
		for i := from * columnsPeriod; i < to*columnsPeriod; i += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(p[i:]))
			binary.LittleEndian.PutUint32(p[i:], math.Float32bits(inColumn(x, i/4%n)))
		}
	})
	return p
}

// halfColumns returns bfloat16 elements of columnsPeriod / 2 columns.
func halfColumns(bytes int64) pattern {
	p, inColumn := halves(bytes), inColumns()
	parallel(len(p)/columnsPeriod, func(from, to int) {
		for i := from * columnsPeriod; i < to*columnsPeriod; i += 2 {
			x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(p[i:])) << 16)
			binary.LittleEndian.PutUint16(p[i:], uint16(math.Float32bits(inColumn(x, i%columnsPeriod/2))>>16))
		}
	})
	return p
}
