package transfer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestGatherRows_Edges: rows of any offset; those that end behind the memory are cut, those that begin there are left alone.
func TestGatherRows_Edges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	mem := make([]byte, 5000)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for _, slot := range []int{16, 48, 224, 464, 784} {
		for _, n := range []int{1, 2, 11, 12, 13, 40} {
			offsets := make([]uint64, n)
			for i := range offsets {
				offsets[i] = uint64(r.IntN(len(mem) + 200))
			}
			offsets[n-1] = uint64(len(mem) - slot)
			offsets[n/2] = 1 << 62
			want := bytes.Repeat([]byte{0x5a}, n*slot)
			for i, at := range offsets {
				if at < uint64(len(mem)) {
					copy(want[i*slot:][:slot], mem[at:])
				}
			}
			got := bytes.Repeat([]byte{0x5a}, n*slot+64)
			gatherRows(got[:n*slot], slot, mem, offsets)
			if !bytes.Equal(got[:n*slot], want) || !bytes.Equal(got[n*slot:], bytes.Repeat([]byte{0x5a}, 64)) {
				t.Errorf("slots of %d bytes, %d rows: the output differs", slot, n)
			}
		}
	}
}

// BenchmarkGatherRows gathers pieces of rows from all over memory beyond the reach of address translation. Run it with and
// without the tag cuda: C and Go.
func BenchmarkGatherRows(b *testing.B) {
	mem := make([]byte, 1<<30)
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, slot := range []int{240, 464} {
		b.Run(fmt.Sprintf("slot=%d", slot), func(b *testing.B) {
			offsets := make([]uint64, 1<<19)
			for i := range offsets {
				offsets[i] = r.Uint64N(uint64(len(mem)-slot)) &^ 15
			}
			stage := make([]byte, len(offsets)/8*slot)
			b.SetBytes(int64(defaultPiece * slot))
			for i := 0; b.Loop(); i++ {
				at := i * defaultPiece % len(offsets)
				to := at % (len(offsets) / 8) * slot
				gatherRows(stage[to:][:defaultPiece*slot], slot, mem, offsets[at:][:defaultPiece])
			}
		})
	}
}
