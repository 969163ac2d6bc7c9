package bitio

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestWriter_ModelBitByBit writes fields of every length at every start and reads them back with Window and Load.
func TestWriter_ModelBitByBit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for start := range 24 {
		for range 50 {
			var fields []uint64
			var lengths []uint
			bits := make([]byte, start)
			for range r.IntN(40) {
				n := r.UintN(65)
				x := r.Uint64() & (1<<n - 1)
				if n == 64 {
					x = r.Uint64()
				}
				fields, lengths = append(fields, x), append(lengths, n)
				for b := range n {
					bits = append(bits, byte(x>>b&1))
				}
			}
			want := make([]byte, (len(bits)+7)/8)
			for i, b := range bits {
				want[i/8] |= b << (i % 8)
			}
			dst := make([]byte, len(want)+Slack)
			w := NewWriter(dst, start)
			for i, x := range fields {
				w.Put(x, lengths[i])
			}
			if n := w.Finish(); n != len(want) || !bytes.Equal(dst[start/8:n], want[start/8:]) {
				t.Fatalf("start %d: wrote %x, want %x", start, dst[:n], want)
			}
			pos := start
			for i, x := range fields {
				mask := uint64(1)<<lengths[i] - 1
				if got := Window(want, pos) & mask; got != x {
					t.Fatalf("field %d of %d bits at %d: got %x, want %x", i, lengths[i], pos, got, x)
				}
				if got := Load(&dst[0], pos/8) >> (pos % 8) & mask; pos%8+int(lengths[i]) <= 64 && got != x {
					t.Fatalf("field %d of %d bits at %d: loaded %x, want %x", i, lengths[i], pos, got, x)
				}
				pos += int(lengths[i])
			}
		}
	}
}

func TestGroup_ZeroBeyondTheEnd(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if x := Group(b, 0); x != 0x0807060504030201 {
		t.Errorf("whole group: %x", x)
	}
	if x := Group(b, 1); x != 0x0a09 {
		t.Errorf("last group: %x", x)
	}
	got := make([]byte, 10)
	PutTail(got[8:], Group(b, 1))
	if !bytes.Equal(got[8:], b[8:]) {
		t.Errorf("tail put back: %x", got)
	}
}
