package registry

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestTrain_AutoPicksTheSmallest(t *testing.T) {
	// Each 4-byte word is constant in half of the rows, on its own: chunks of 8 bytes participate too rarely.
	r := rand.New(rand.NewPCG(1, 2))
	var mixed, noise []byte
	for range 4096 * 16 {
		constant := r.IntN(2) == 0
		for range 4 {
			b := byte(r.Uint32())
			noise = append(noise, b)
			if constant {
				b = 7
			}
			mixed = append(mixed, b)
		}
	}
	for _, c := range []struct {
		name, want string
		sample     []byte
	}{{Auto, "ibp4", mixed}, {Auto, "", noise}, {None, "", mixed}, {"ibp8", "ibp8", noise}, {"ibp", "ibp8", bytes.Repeat([]byte{1}, 4096)}} {
		got, err := Train(c.name, c.sample, 64)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		if got != nil {
			name = got.Name()
		}
		if name != c.want {
			t.Errorf("Train(%s) picked %q, want %q", c.name, name, c.want)
		}
	}
}

func TestTrain_UnknownName(t *testing.T) {
	_, err := Train("zip", nil, 4)
	if want := `codec: unknown codec ("zip") must be one of auto, none, ibp, ibp4, ibp8`; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}
