package workload

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/dtype"
)

// A StandIn is a generated table in place of real ones that are not shipped: of the same element type and row length, and with what makes those
// compress.
type StandIn struct {
	Name, About string
	DType       dtype.Type
	Columns     int
	// Rows is the number of rows that have been used for figures.
	Rows int
	// fill writes rows from on, each rowBytes, of a table whose columns have statistics drawn from seed.
	fill func(s *StandIn, out []byte, seed uint64, r *rand.Rand)
}

// StandIns are all stand-ins.
var StandIns = []StandIn{
	{"shares", "bags of words divided by their number, about 150 of 767 words a bag", dtype.Float32, 767, 8000, fillShares},
	{"places", "32 ones in random places of 3,703", dtype.Float32, 3703, 3000, fillPlaces},
	{"documents", "document vectors: columns of different scale and mean, rows of different length", dtype.Float32, 100, 20_000, fillDocuments},
	{"weather", "fields of a weather model: neighbours that hardly differ, packed to few values, with stretches of equal ones", dtype.Float32, 384, 8000, fillWeather},
	{"weights", "weights of a network: N(0,1) times a factor of the layer, which 384 rows have in common", dtype.Float16, 384, 20_000, fillWeights},
}

// FindStandIn returns the stand-in of that name, or an error that has all names.
func FindStandIn(name string) (*StandIn, error) {
	i := slices.IndexFunc(StandIns, func(s StandIn) bool { return s.Name == name })
	if i >= 0 {
		return &StandIns[i], nil
	}
	var names []string
	for _, s := range StandIns {
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("workload: stand-in (%q) must be one of %v", name, names)
}

// RowBytes returns the length of a row.
func (s *StandIn) RowBytes() int { return s.Columns * s.DType.Size() }

// Table generates rows of the stand-in, row after row, as little-endian bytes. The same seed gives the same bytes.
func (s *StandIn) Table(rows int, seed uint64) ([]byte, error) {
	if rows < 1 || rows > math.MaxInt/8/s.RowBytes() {
		return nil, fmt.Errorf("workload: stand-in %s: rows (%d) must be at least 1 and fit memory", s.Name, rows)
	}
	table := make([]byte, rows*s.RowBytes())
	forEachBlock((rows-1)/standInBlock+1, func(b int) {
		from, to := b*standInBlock, min((b+1)*standInBlock, rows)
		s.fill(s, table[from*s.RowBytes():to*s.RowBytes()], seed, rand.New(newStream(seed, purposeStandIns, uint64(b))))
	})
	return table, nil
}

// standInBlock is the rows that are drawn from one stream: those of a layer of stand-in weights.
const standInBlock = 384

func putFloat32(out []byte, i int, x float64) {
	binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x)))
}

// eachRow calls do for each row of out.
func (s *StandIn) eachRow(out []byte, do func(row []byte)) {
	for row := range slices.Chunk(out, s.RowBytes()) {
		do(row)
	}
}

func fillShares(s *StandIn, out []byte, seed uint64, r *rand.Rand) {
	often := rand.New(newStream(seed, purposeStandIns, math.MaxUint64))
	share := make([]float64, s.Columns) // of the bags that have a word
	for j := range share {
		share[j] = 0.6 * math.Pow(often.Float64(), 2)
	}
	s.eachRow(out, func(row []byte) {
		var words []int
		for j, p := range share {
			if r.Float64() < p {
				words = append(words, j)
			}
		}
		for _, j := range words {
			putFloat32(row, j, 1/float64(len(words)))
		}
	})
}

func fillPlaces(s *StandIn, out []byte, _ uint64, r *rand.Rand) {
	const ones = 32
	s.eachRow(out, func(row []byte) {
		for n := 0; n < ones; {
			if j := r.IntN(s.Columns); binary.LittleEndian.Uint32(row[4*j:]) == 0 {
				putFloat32(row, j, 1)
				n++
			}
		}
	})
}

func fillDocuments(s *StandIn, out []byte, seed uint64, r *rand.Rand) {
	of := rand.New(newStream(seed, purposeStandIns, math.MaxUint64))
	scale, mean := make([]float64, s.Columns), make([]float64, s.Columns)
	for j := range scale {
		scale[j] = float64(float32(math.Exp(0.6 * of.NormFloat64())))
		mean[j] = scale[j] * of.NormFloat64()
	}
	s.eachRow(out, func(row []byte) {
		length := float64(float32(math.Exp(0.3 * r.NormFloat64())))
		for j := range scale {
			putFloat32(row, j, length*(mean[j]+scale[j]*r.NormFloat64()))
		}
	})
}

func fillWeather(s *StandIn, out []byte, _ uint64, r *rand.Rand) {
	const step = 1.0 / 16 // of packed values
	s.eachRow(out, func(row []byte) {
		x, slope := 280+10*r.NormFloat64(), 0.0
		for j := 0; j < s.Columns; {
			n := 1 // columns of one value
			if r.IntN(4) == 0 {
				n += r.IntN(12)
			}
			slope = 0.8*slope + 0.08*r.NormFloat64()
			x += slope
			for ; n > 0 && j < s.Columns; n, j = n-1, j+1 {
				putFloat32(row, j, math.RoundToEven(x/step)*step)
			}
		}
	})
}

func fillWeights(s *StandIn, out []byte, _ uint64, r *rand.Rand) {
	layer := float64(float32(0.04 * math.Exp(0.7*r.NormFloat64())))
	s.eachRow(out, func(row []byte) {
		for j := range s.Columns {
			binary.LittleEndian.PutUint16(row[2*j:], float16(layer*r.NormFloat64()))
		}
	})
}

// float16 returns the nearest float16, the even one of two. REQUIRES: |x| is below 65,504.
func float16(x float64) uint16 {
	sign := uint16(math.Float64bits(x)>>63) << 15
	if x == 0 {
		return sign
	}
	_, e := math.Frexp(x)
	e = max(e-1, -14)
	steps := uint16(math.RoundToEven(math.Ldexp(math.Abs(x), 10-e)))
	return sign | (uint16(e+14)<<10 + steps)
}
