//go:build cuda && linux

package gpu

import (
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// hitColumns is hitDecode by rank of rows whose columns have different scales and means, so that rank has bases for them, and of rows that
// have different scales besides, so that it has classes of rows. float16 has symbols of fewer bits than a byte.
func (r *runner) hitColumns() {
	for i, of := range []struct {
		dtype  dtype.Type
		scaled bool
		label  string
	}{
		{dtype.Float32, false, "rank"},
		{dtype.BFloat16, false, "rank" + BFloat16Suffix},
		{dtype.Float16, false, "rank" + Float16Suffix},
		{dtype.BFloat16, true, "rank" + BFloat16Suffix + ScaledSuffix},
		{dtype.Float16, true, "rank" + Float16Suffix + ScaledSuffix},
	} {
		t := r.shared(&r.columns[i], func() pattern { return columns(of.dtype, of.scaled) })
		for _, rowBytes := range r.o.RowBytes {
			if rowBytes%columnsPeriod != 0 || of.scaled && scaledBytes%rowBytes != 0 {
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
