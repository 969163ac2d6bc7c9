//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/internal/dtype"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// codecTableBytes is the most of a table that each codec is measured on: what a batch of hitDecode reads.
const codecTableBytes = 512 << 20

// hitCodecs is hitDecode by every codec asked for that GPUs decode and that serves the elements, but for hitDecode's own: float32 and bfloat16.
// One that fails stops no other.
func (r *runner) hitCodecs(rowBytes int) error {
	var failed []error
	for _, of := range []struct {
		rows   func() (*filled, error)
		dtype  codec.DType
		suffix string
	}{{r.normalRows, dtype.Float32, ""}, {r.halfRows, dtype.BFloat16, BFloat16Suffix}} {
		f, err := of.rows()
		if err != nil {
			return err
		}
		table := whole(f.host.Bytes()[:min(f.host.Size(), codecTableBytes)], rowBytes)
		for _, name := range r.o.Codecs {
			if name == codecName && of.dtype == dtype.Float32 {
				continue
			}
			if err := r.hitCodec(table, rowBytes, name, of.dtype, of.rows, name+of.suffix); err != nil {
				failed = append(failed, fmt.Errorf("%s of %v, %d bytes: %w", name, of.dtype, rowBytes, err))
			}
		}
	}
	return errors.Join(failed...)
}

func (r *runner) hitCodec(table []byte, rowBytes int, name string, elements codec.DType, of func() (*filled, error), label string) error {
	defer r.free()
	tier, err := transfer.Load(r.d, transfer.SourceOf(table, rowBytes), transfer.Options{Codec: name, DType: elements, Seed: seed})
	if errors.Is(err, codec.ErrDType) {
		return nil
	}
	if err != nil {
		return err
	}
	defer tier.Close()
	on, ok := tier.Codec().(codec.OnDevice)
	if !ok || !kernels.Decodes(on.DeviceForm()) {
		return nil
	}
	return r.hitDecode(tier, of, "hit-codecs", label, r.d)
}

// halves returns pairs of N(0,1) bfloat16 elements.
func halves() pattern {
	return newPattern(func(r *rand.Rand) float32 {
		low, high := math.Float32bits(float32(r.NormFloat64())), math.Float32bits(float32(r.NormFloat64()))
		return math.Float32frombits(low>>16 | high&0xffff0000)
	})
}
