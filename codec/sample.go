package codec

import "math/rand/v2"

// The sample that codecs are trained on: one row in sampleShare, at least sampleRows, at most sampleBytes in all.
const (
	sampleShare = 50
	sampleRows  = 4096
	sampleBytes = 32 << 20
)

// Sample copies rows spread over a table, one drawn in each of equal parts, and returns them back to back, as
// Family.Train takes them. Row r lies at r × stride in table; there must be at least one.
func Sample(table []byte, rows int64, rowBytes int, stride int64, seed uint64) []byte {
	n := max(rows/sampleShare, sampleRows)
	n = max(1, min(n, rows, sampleBytes/int64(rowBytes)))
	r := rand.New(rand.NewPCG(seed, 0x73616d706c65))
	sample := make([]byte, 0, n*int64(rowBytes))
	for i := range n {
		from, to := i*rows/n, (i+1)*rows/n
		sample = append(sample, table[(from+r.Int64N(to-from))*stride:][:rowBytes]...)
	}
	return sample
}
