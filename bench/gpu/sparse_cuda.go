//go:build cuda && linux

package gpu

import (
	"slices"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// bag is how many words the bags of words of hit-sparse draw on average, and bagWords from how many, as cora has; from a few more where a row would not be
// a multiple of 4 bytes, which a plain gather takes.
const (
	bag      = 18
	bagWords = 1433
)

// sparseTable is a table of hit-sparse: rows returns so many rows of it.
type sparseTable struct {
	label    string
	dtype    dtype.Type
	rowBytes int
	rows     func(n int) []byte
}

// sparseTables are bags of words of elements of each length; bags divided by their number of words; and 32 ones of 3,703 elements.
func sparseTables() (tables []sparseTable) {
	for _, of := range []dtype.Type{dtype.Float32, dtype.Float16, dtype.Int8, dtype.Float64} {
		words := bagWords
		for words*of.Size()%4 != 0 {
			words++
		}
		tables = append(tables, sparseTable{"sparse 0/1 " + of.String(), of, words * of.Size(), func(n int) []byte { return bags(n, words, of.Size()) }})
	}
	for _, name := range []string{"shares", "places"} {
		s := get(workload.FindStandIn(name))
		tables = append(tables, sparseTable{"sparse " + name, s.DType, s.RowBytes(), func(n int) []byte { return get(s.Table(n, seed)) }})
	}
	return tables
}

// bags returns n bags of words whose elements have so many bytes, the first of which is 0 or 1.
func bags(n, words, elementBytes int) []byte {
	floats := get(workload.Words(n, words, bag, seed))
	out := make([]byte, n*words*elementBytes)
	for i := range n * words {
		out[i*elementBytes] = floats[4*i+3] & 1 // of 1.0, 0x3f800000
	}
	return out
}

// hitSparse is hitDecode by the codec for sparse rows of tables as they are used: rows of several thousand bytes, not all of whole quads.
func (r *runner) hitSparse() {
	if !slices.Contains(r.o.Codecs, sparseRowsCodec) {
		return
	}
	for _, of := range sparseTables() {
		rows := int(min(r.o.TableBytes, codecTableBytes)) / of.rowBytes
		few := of.rows(min(rows, patternBytes/4/of.rowBytes))
		host := r.allocHost(int64(rows * of.rowBytes))
		pattern(few).fill(host.Bytes())
		t := &table{host, r.put(host.Bytes())}
		tier := get(transfer.Load(r.d, transfer.SourceOf(host.Bytes(), of.rowBytes), transfer.Options{Codec: sparseRowsCodec, DType: of.dtype, Seed: seed}))
		err := try(func() { r.hitDecode(tier, t, "hit-sparse", of.label, r.d, 0) })
		tier.Close()
		r.free()
		must(err)
	}
}
