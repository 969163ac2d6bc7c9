//go:build cuda && linux

package gpu

import (
	"fmt"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// hitColumns is hitDecode by rank of rows whose columns have different scales and means, so that rank has bases for them, and of rows that
// have different scales besides, so that it has classes of rows. float16 has symbols of fewer bits than a byte.
func (r *runner) hitColumns() {
	defer r.free()
	for _, of := range []struct {
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
		r.free()
		size := min(r.o.TableBytes, codecTableBytes)
		t := r.tableOf(columns(size, of.dtype, of.scaled), size, &r.buffers)
		made := len(r.buffers)
		for _, rowBytes := range r.o.RowBytes {
			if rowBytes%columnsPeriod != 0 || of.scaled && scaledBytes%rowBytes != 0 {
				continue
			}
			rows := whole(t.host.Bytes(), rowBytes)
			tier := get(transfer.Load(r.d, transfer.SourceOf(rows, rowBytes), transfer.Options{Codec: "rank", DType: of.dtype, Seed: seed}))
			err := try(func() {
				r.hitDecode(tier, t, "hit-columns", of.label, r.d, 0)
				for _, lanes := range r.o.Lanes {
					r.freeFrom(made)
					r.hitDecode(tier, t, "hit-columns", fmt.Sprintf("%s, %d lanes", of.label, lanes), r.d, lanes)
				}
			})
			r.freeFrom(made)
			tier.Close()
			must(err)
		}
	}
}
