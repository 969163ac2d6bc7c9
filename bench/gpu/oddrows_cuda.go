//go:build cuda && linux

package gpu

import (
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// oddRowBytes are the row lengths of the case odd-rows, whose rows do not begin at multiples of 16 bytes: 66 and 75 columns of float32.
var oddRowBytes = []int{264, 300}

// oddRows is hitDecode of rows of these lengths, of several element types.
func (r *runner) oddRows() {
	counts := func() *table { return r.shared(&r.counts, counts) }
	for _, rowBytes := range oddRowBytes {
		for _, of := range []struct {
			codec cache.Codec
			dtype dtype.Type
			table func() *table
			label string
		}{
			{codecName, dtype.Float32, r.normalRows, codecName},
			{codecName, dtype.Float32, r.sparseRows, SparseCodec},
			{codecName, dtype.BFloat16, r.halfRows, codecName + BFloat16Suffix},
			{codecName, dtype.Uint8, counts, codecName + Uint8Suffix},
			{"rank", dtype.Float32, r.normalRows, "rank"},
			{registry.None, dtype.Float32, r.normalRows, registry.None},
		} {
			t := of.table()
			rows := whole(t.host.Bytes()[:min(t.host.Size(), codecTableBytes)], rowBytes)
			tier := get(transfer.Load(r.d, transfer.SourceOf(rows, rowBytes), transfer.Options{Codec: string(of.codec), DType: of.dtype, Seed: seed}))
			err := try(func() { r.hitDecode(tier, t, "odd-rows", of.label, r.d, 0) })
			r.free()
			tier.Close()
			must(err)
		}
	}
}

// counts returns bytes whose values fall off exponentially, as counts do.
func counts(bytes int64) pattern {
	return newPattern(bytes, func(r *rand.Rand) float32 {
		v := uint32(0)
		for k := range 4 {
			v |= uint32(min(255, 8*r.ExpFloat64())) << (8 * k)
		}
		return math.Float32frombits(v)
	})
}
