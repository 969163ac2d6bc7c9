package registry

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestSmallest_StoresFewest: no other codec takes fewer bytes, but for what counts as equal.
func TestSmallest_StoresFewest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	normal, ones := make([]byte, 0, 200*512), make([]byte, 200*512)
	for range 200 * 128 {
		normal = binary.LittleEndian.AppendUint32(normal, math.Float32bits(float32(r.NormFloat64())))
	}
	for i := range 400 {
		binary.LittleEndian.PutUint32(ones[i*256:], 1)
	}
	noise := make([]byte, 200*512)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for name, data := range map[string][]byte{"normal": normal, "ones": ones, "noise": noise} {
		c, ratio, err := Smallest(data, 512, dtype.Float32)
		if err != nil {
			t.Fatal(err)
		}
		if name == "noise" {
			if c != nil || ratio != 1 {
				t.Errorf("noise: %v, %.3f", c, ratio)
			}
			continue
		}
		stored := func(name string) (n int) {
			of, err := Train(name, data, 512, dtype.Float32)
			if err != nil {
				return len(data)
			}
			rows, err := encodeAll(of, data, 512)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				n += len(row)
			}
			return n
		}
		picked := stored(c.Name())
		for _, other := range Concrete() {
			if n := stored(other); float64(n) < float64(picked)-0.02*float64(len(data)) {
				t.Errorf("%s: %s takes %d bytes, %s %d", name, c.Name(), picked, other, n)
			}
		}
	}
}
