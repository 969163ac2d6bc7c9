package sleek

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// normal returns words of N(0,1).
func normal(words int, l layout) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	var b []byte
	for range words {
		f := r.NormFloat64()
		switch l {
		case float64s:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		case float32s:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		case bfloat16:
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(f))>>16))
		default: // float16, of normal numbers only
			x := math.Float32bits(float32(f))
			b = binary.LittleEndian.AppendUint16(b, uint16(x>>16&0x8000)|uint16(max(int32(x>>13&0x3ffff)-112<<10, 0)))
		}
	}
	return b
}

func BenchmarkDecode(b *testing.B) {
	for _, bc := range []struct {
		name string
		l    layout
		eps  float64
	}{{"sleek/float32", float32s, 0}, {"sleek/float64", float64s, 0}, {"sleek/bfloat16", bfloat16, 0}, {"sleek/float16", float16, 0}, {"sleek:0.001/float32", float32s, 0.001}} {
		for _, rowBytes := range []int{128, 512, 4096} {
			b.Run("codec="+bc.name+"/row="+string(rune(rowBytes)), func(b *testing.B) {
				table := normal(4<<20/bc.l.word, bc.l)
				var eb *bounded
				if bc.eps > 0 {
					eb, _ = newBounded(bc.l, bc.eps)
				}
				c, err := train(table, rowBytes, bc.l, eb)
				if err != nil {
					b.Fatal(err)
				}
				rows := len(table) / rowBytes
				stored := make([][]byte, rows)
				dst := make([]byte, c.EncodeBound())
				for i := range stored {
					n := c.encode(dst, table[i*rowBytes:][:rowBytes])
					stored[i] = bytes.Clone(dst[:n])
				}
				row := make([]byte, rowBytes)
				b.SetBytes(int64(rowBytes))
				b.ResetTimer()
				for i := range b.N {
					if _, err := c.Decode(row, stored[i%rows]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
