//go:build cuda && linux

package gpu

import (
	"slices"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/transfer"
)

// partsElements are the float8 values of the rows of hit-parts, which have a scale for each workload.Float8Block of them.
var partsElements = []int{256, 512, 2048}

// hitParts is hitDecode of rows of float8 values and scales: as rows of parts by the codec for these, and as bytes by others.
func (r *runner) hitParts() {
	for _, elements := range partsElements {
		of := workload.Float8Row(elements)
		rowBytes := of.Size()
		rows := int(min(r.o.TableBytes, codecTableBytes)) / rowBytes
		few := get(workload.Float8Rows(min(rows, patternBytes/rowBytes), elements, seed))
		host := r.allocHost(int64(rows * rowBytes))
		pattern(few).fill(host.Bytes())
		t := &table{host, r.put(host.Bytes())}
		for _, name := range []string{partsCodec, "zipnn", codecName} {
			if !slices.Contains(r.o.Codecs, name) {
				continue
			}
			tier := get(transfer.Load(r.d, transfer.SourceOf(host.Bytes(), rowBytes), transfer.Options{Codec: name, DType: of, Seed: seed}))
			kept := len(r.buffers)
			err := try(func() { r.hitDecode(tier, t, "hit-parts", name, r.d) })
			r.freeFrom(kept)
			tier.Close()
			must(err)
		}
		r.free()
	}
}
