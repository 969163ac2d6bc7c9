//go:build cuda && linux

package gpu

import (
	"errors"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/dtype"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// codecTableBytes is the size of the tables of hit-codecs, at most: far beyond the L2, and every codec encodes it in seconds.
const codecTableBytes = 512 << 20

// halves returns N(0,1) elements rounded to bfloat16, two a word.
func halves() pattern {
	half := func(r *rand.Rand) uint32 {
		u := math.Float32bits(float32(r.NormFloat64()))
		return (u + 0x7fff + u>>16&1) >> 16
	}
	return newPattern(func(r *rand.Rand) float32 { return math.Float32frombits(half(r) | half(r)<<16) })
}

// bfloatRows is normalRows of 16-bit elements.
func (r *runner) bfloatRows() (*filled, error) { return r.shared(&r.bfloats, halves) }

// hitCodecs decodes hits of every codec that GPUs have kernels for, of N(0,1) float32 and bfloat16 rows.
func (r *runner) hitCodecs(rowBytes int) error {
	for _, table := range []struct {
		dtype codec.DType
		of    func() (*filled, error)
	}{{dtype.Float32, r.normalRows}, {dtype.BFloat16, r.bfloatRows}} {
		f, err := table.of()
		if err != nil {
			return err
		}
		data := whole(f.host.Bytes()[:min(f.host.Size(), codecTableBytes)], rowBytes)
		for _, name := range registry.Concrete() {
			tier, err := transfer.Load(r.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: name, DType: table.dtype, Seed: seed})
			if errors.Is(err, codec.ErrDType) {
				continue
			}
			if err != nil {
				return err
			}
			if on, ok := tier.Codec().(codec.OnDevice); ok && kernels.Decodes(on.DeviceForm()) {
				err = r.hitDecode(codecCase, tier, table.of, codecLabel(name, table.dtype))
			}
			tier.Close()
			r.free()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
