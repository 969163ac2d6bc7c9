package drive

import (
	"encoding/binary"
	"io"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// rows are the rows of a generated table. It is a pages.RangedSource.
type rows struct {
	n, rowBytes int
	// fill writes a row.
	fill func(dst []byte, row int64)
}

func (r *rows) Rows() int                { return r.n }
func (r *rows) RowBytes() int            { return r.rowBytes }
func (r *rows) Close() error             { return nil }
func (r *rows) Read([]byte) (int, error) { return 0, io.EOF }

func (r *rows) ReadFrom(row int64, dst []byte) error {
	for i := range len(dst) / r.rowBytes {
		r.fill(dst[i*r.rowBytes:][:r.rowBytes], row+int64(i))
	}
	return nil
}

// numbered fills rows that no codec compresses, and that follow from their numbers.
func numbered(seed uint64) func(dst []byte, row int64) {
	return func(dst []byte, row int64) {
		r := rand.NewPCG(seed, uint64(row))
		for len(dst) >= 8 {
			binary.LittleEndian.PutUint64(dst, r.Uint64())
			dst = dst[8:]
		}
		for i, word := 0, r.Uint64(); i < len(dst); i++ {
			dst[i] = byte(word >> (8 * i))
		}
	}
}

// float8Rows is how many different rows there are of float8 values. It is a prime, so no power of two of rows lies between equal rows.
const float8Rows = 131_071

// float8s fills rows of float8 values with scales: workload.Float8Rows, which repeat after float8Rows.
func float8s(n int, seed uint64) (func(dst []byte, row int64), error) {
	different := int64(min(n, float8Rows))
	all, err := workload.Float8Rows(int(different), workload.NgramElements, seed)
	return func(dst []byte, row int64) { copy(dst, all[row%different*workload.NgramRowBytes:]) }, err
}
