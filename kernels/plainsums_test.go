package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestSums_EqualsHost holds the baseline of pooled batches against sums of whole numbers, which every order gets right.
func TestSums_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, element := range []dtype.Type{dtype.Float32, dtype.BFloat16} {
		for _, rowBytes := range []int{16, 208, 512, 1040} {
			for _, bag := range []int{1, 7, 8, 200} {
				t.Run(fmt.Sprintf("%s/row=%d/bag=%d", element, rowBytes, bag), func(t *testing.T) {
					const rows, bags = 257, 30
					columns := rowBytes / element.Size()
					number := func(row int64, column int) float32 { return float32((row*31+int64(column)*7)%128 - 64) }
					var data []byte
					for row := range int64(rows) {
						for column := range columns {
							bits := math.Float32bits(number(row, column))
							if element == dtype.Float32 {
								data = binary.LittleEndian.AppendUint32(data, bits)
							} else {
								data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
							}
						}
					}
					ids := make([]int64, bags*bag)
					want := make([]byte, bags*columns*4)
					for i := range ids {
						ids[i] = int64(i * 7919 % rows)
					}
					for b := range bags {
						for column := range columns {
							sum := float32(0)
							for _, id := range ids[b*bag:][:bag] {
								sum += number(id, column)
							}
							binary.LittleEndian.PutUint32(want[(b*columns+column)*4:], math.Float32bits(sum))
						}
					}
					both(t, gpu, reason, func(b *bench) []byte {
						out := b.output(int64(len(want)), 0)
						k := kernels.Gather{Mem: b.put(data), Rows: b.put(asBytes(ids)), Out: out.rows, RowBytes: rowBytes}
						b.launch(k.Sums(bag, element))
						return out.read(b)
					}, func(t *testing.T, host, got []byte) {
						if !bytes.Equal(host, want) || !bytes.Equal(got, want) {
							t.Fatal("sums are wrong")
						}
					})
				})
			}
		}
	}
}
