package codec

import "math/rand/v2"

// The sample that codecs are trained on: one row in sampleShare, at least sampleRows, at most sampleBytes in all.
const (
	sampleShare = 50
	sampleRows  = 4096
	sampleBytes = 32 << 20
)

// Sample copies rows spread over a table, those of SampleRows, and returns them back to back, as Family.Train takes them.
// Row r lies at r × stride in table; there must be at least one.
func Sample(table []byte, rows int64, rowBytes int, stride int64, seed uint64) []byte {
	return Gather(table, SampleRows(rows, rowBytes, seed), rowBytes, stride)
}

// SampleRows returns the numbers of rows spread over a table, one drawn in each of equal parts.
func SampleRows(rows int64, rowBytes int, seed uint64) []int64 {
	n := max(rows/sampleShare, sampleRows)
	n = max(1, min(n, rows, sampleBytes/int64(rowBytes)))
	r := rand.New(rand.NewPCG(seed, 0x73616d706c65))
	sample := make([]int64, n)
	for i := range n {
		from, to := i*rows/n, (i+1)*rows/n
		sample[i] = from + r.Int64N(to-from)
	}
	return sample
}

// Gather copies the given rows of a table, back to back.
func Gather(table []byte, rows []int64, rowBytes int, stride int64) []byte {
	out := make([]byte, 0, len(rows)*rowBytes)
	for _, r := range rows {
		out = append(out, table[r*stride:][:rowBytes]...)
	}
	return out
}
