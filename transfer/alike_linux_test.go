package transfer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/dtype"
)

// processorTime returns the seconds of processors that the process has taken.
func processorTime(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkLoad_Groups loads a table of 1 GiB whose rows lie in place with and without the search for equal rows, by turns. share is the part of rows
// that are like one of a thousand others, or, if it is negative, zeros.
func BenchmarkLoad_Groups(b *testing.B) {
	const rowBytes = 512
	for _, share := range []float64{0, 0.5, -0.2} {
		r := rand.New(rand.NewPCG(1, 2))
		data := make([]byte, 1<<30)
		for at := 0; at < len(data); at += rowBytes {
			row := data[at:][:rowBytes]
			if r.Float64() < -share {
				continue
			}
			if at > 1000*rowBytes && r.Float64() < share {
				copy(row, data[r.IntN(1000)*rowBytes:])
				continue
			}
			for i := 0; i < rowBytes; i += 4 { // floats of similar exponents
				binary.LittleEndian.PutUint32(row[i:], math.Float32bits(float32(r.NormFloat64())))
			}
		}
		for _, codec := range []string{"none", "ibp4"} {
			b.Run(fmt.Sprintf("equal=%v/codec=%s", share, codec), func(b *testing.B) {
				var took, cpu [2][]float64
				found := int64(0)
				for i := range 2 * b.N {
					start, busy := time.Now(), processorTime(b)
					tier, err := Load(newDevice(), SourceOf(data, rowBytes), Options{Codec: codec, DType: dtype.Float32, EqualRows: i%2 == 1})
					if err != nil {
						b.Fatal(err)
					}
					took[i%2] = append(took[i%2], time.Since(start).Seconds())
					cpu[i%2] = append(cpu[i%2], processorTime(b)-busy)
					found = tier.Totals().EqualRows
					tier.Close()
				}
				for name, of := range map[string][2][]float64{"": took, "cpu-": cpu} {
					slices.Sort(of[0])
					slices.Sort(of[1])
					without, with := of[0][b.N/2], of[1][b.N/2]
					b.ReportMetric(without*1e3, name+"without-ms")
					b.ReportMetric(with*1e3, name+"with-ms")
					b.ReportMetric(100*(with/without-1), "%"+name+"more")
				}
				b.ReportMetric(float64(found), "equal-rows")
			})
		}
	}
}
