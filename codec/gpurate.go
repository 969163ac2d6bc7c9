package codec

import (
	"maps"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// GPURate is what decoding hits on a GPU writes a second as a share of what copying rows as they are does. Rows that take fewer stored bytes are decoded
// faster, as less is read.
type GPURate struct {
	// Rate is of rows that are stored in 1/Ratio of their bytes; 0 for families that GPUs cannot decode. Before For it is the median of all that Rows has of one kind.
	Rate, Ratio float64
	// Ones and OnesRatio are the same of rows of zeros and few ones; 0 where no GPU has measured such rows.
	Ones, OnesRatio float64
	// Rows are the rates of rows of different lengths, in ascending order, by their kind, as module lab measured them. For chooses among them.
	Rows [RowKinds][]RowRate
	// Measured says that a GPU has measured Rate; if not, it is the goal.
	Measured bool
}

// RowRate is a rate of rows of one length.
type RowRate struct {
	RowBytes    int
	Rate, Ratio float64
}

// RowKind is the kind of rows that a rate was measured of.
type RowKind int

// The kinds of rows.
const (
	Float32Rows  RowKind = iota
	BFloat16Rows         // 2 bytes an element
	Float16Rows          // 2 bytes an element, of which more is random
	ByteRows             // float8 values with their scales
	OnesRows             // zeros and few ones
	RowKinds
)

// CodesPlanes is implemented by codecs that decode each byte plane of the elements by itself, which takes them the longer, the more of these are coded.
type CodesPlanes interface {
	// CodedPlanes returns how many of the byte planes are coded, and how many there are.
	CodedPlanes() (coded, planes int)
}

// kindOf returns the kind that rows of a type are most like, if a codec decodes them.
func kindOf(of dtype.Type, c Codec) RowKind {
	kind := Float32Rows
	switch {
	case of.IsRow() || of.Size() == 1:
		return ByteRows
	case of == dtype.BFloat16:
		kind = BFloat16Rows
	case of.Size() == 2:
		kind = Float16Rows
	}
	if c, ok := c.(CodesPlanes); ok {
		switch coded, planes := c.CodedPlanes(); {
		case 2*coded > planes:
			return ByteRows
		case 4*coded > planes && kind == Float32Rows:
			return Float16Rows
		}
	}
	return kind
}

// For returns the rate for rows of a type and length that a codec decodes: of the kind measured that is most like them, between the two lengths next to theirs. Where
// nothing of that kind was measured, float32 rows stand for it, and Rate where there are none either.
func (r GPURate) For(of dtype.Type, rowBytes int, c Codec) GPURate {
	for _, kind := range []RowKind{kindOf(of, c), Float32Rows, BFloat16Rows} {
		if len(r.Rows[kind]) > 0 {
			r.Rate, r.Ratio = between(r.Rows[kind], rowBytes)
			break
		}
	}
	if len(r.Rows[OnesRows]) > 0 {
		r.Ones, r.OnesRatio = between(r.Rows[OnesRows], rowBytes)
	}
	return r
}

// between returns the rate and ratio of rows of a length, which grow with its logarithm from one measured length to the next.
func between(rows []RowRate, rowBytes int) (rate, ratio float64) {
	after := 0
	for after < len(rows) && rows[after].RowBytes < rowBytes {
		after++
	}
	if after == len(rows) {
		return rows[after-1].Rate, rows[after-1].Ratio
	}
	to := rows[after]
	if after == 0 {
		return to.Rate, to.Ratio
	}
	from := rows[after-1]
	part := math.Log2(float64(rowBytes)/float64(from.RowBytes)) / math.Log2(float64(to.RowBytes)/float64(from.RowBytes))
	return from.Rate + part*(to.Rate-from.Rate), from.Ratio + part*(to.Ratio-from.Ratio)
}

// At returns the rate for rows that are stored in 1/ratio of their bytes: the time of a row grows with its stored bytes, from Ones to Rate.
func (r GPURate) At(ratio float64) float64 {
	if r.Ones == 0 || ratio <= r.Ratio {
		return r.Rate
	}
	stored := max(1/ratio, 1/r.OnesRatio)
	part := (stored - 1/r.OnesRatio) / (1/r.Ratio - 1/r.OnesRatio)
	return 1 / (part/r.Rate + (1-part)/r.Ones)
}

// RateOnGPU returns the rate of a family, the zero GPURate where it has none.
func RateOnGPU(family string) GPURate { return gpuRates[family] }

// RatesOnGPU returns all rates, by family.
func RatesOnGPU() map[string]GPURate { return maps.Clone(gpuRates) }
