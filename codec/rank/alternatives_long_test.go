//go:build long

package rank

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// TestLong_Alternatives logs what other codes for columns would save, in % of bytes, rows not rounded to bytes, beside bases and classes
// (docs/notebook/columns.md). Each has the rotation and symbol length that suit it best, and digits that GPUs need not have fast decoders for.
func TestLong_Alternatives(t *testing.T) {
	for _, c := range []struct {
		name  string
		table func(t *testing.T) (table []byte, rowBytes int)
	}{
		{"ncf_user", func(t *testing.T) ([]byte, int) { return codectest.Table(t, "ncf_user.npy") }},
		{"reddit", func(t *testing.T) ([]byte, int) { return codectest.Table(t, "reddit.npz") }},
		{"vectors", func(*testing.T) ([]byte, int) { return codectest.Vectors(1, 4000, 128), 512 }},
		{"words", func(t *testing.T) ([]byte, int) {
			return codectest.TrainVectors(codectest.Text(t), 0, 3), 4 * codectest.VectorColumns
		}},
		{"pieces", func(t *testing.T) ([]byte, int) {
			return codectest.TrainVectors(codectest.Text(t), 100, 12), 4 * codectest.VectorColumns
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, rowBytes := c.table(t)
			rowBytes /= 2
			for _, of := range []struct {
				name string
				rows topRows
			}{{"bfloat16", topRowsOf(codectest.BFloat16(table), rowBytes, 2)}, {"float16", topRowsOf(codectest.Float16(table), rowBytes, 2)}} {
				t.Logf("%s: %s", of.name, alternatives(of.rows, rowBytes))
			}
		})
	}
}

// alternatives returns the savings of rows of elements of 2 bytes.
func alternatives(rows topRows, rowBytes int) (text string) {
	width := len(rows[0])
	total := float64(len(rows) * width)
	var best [9]float64
	names := [len(best)]string{"one ranking", "bases", "bases, entropy", "rankings of columns", "rankings and digits of columns", "lengths too", "4 classes", "16 classes", "bases, digits of any number of values"}
	keep := func(i int, bits float64) { best[i] = max(best[i], 100*(1-bits/total/16)) }
	classes := [2]*classed{}
	for i, most := range []int{4, 16} {
		classes[i] = classesUpTo(rows, most)
	}
	for rotate := range 2 {
		columns := rows.columns(nil, 1, rotate)
		ownLength := slices.Repeat([]float64{math.Inf(1)}, width)
		for bits := 4; bits <= fineBits; bits++ {
			rest := total * float64(16-bits)
			counts := make([]int64, 1<<bits)
			countSymbols(columns, make([]uint16, width), counts)
			keep(0, digitBits(counts, bits)+rest)
			_, counts = trainBases(columns, bits, nil, basedRounds)
			keep(1, digitBits(counts, bits)+rest)
			keep(2, entropyOf(counts)+rest)
			keep(8, radixBits(counts, bits)+rest)
			// Codes of columns: each has the offset by which its entropy is the least.
			common, own := make([]int64, 1<<bits), rest
			for j, column := range columns {
				counts := offsetCounts(column, bits)
				cost := digitBits(counts, bits)
				own += cost
				ownLength[j] = min(ownLength[j], cost+rest/float64(width))
				slices.Sort(counts)
				slices.Reverse(counts)
				for i, n := range counts {
					common[i] += n
				}
			}
			keep(3, digitBits(common, bits)+rest)
			keep(4, own)
			for i, by := range classes {
				of, _ := by.assign(rows)
				_, counts := trainBases(rows.columns(of, by.count(), rotate), bits, by.basesFor(rotate), laterRounds)
				keep(6+i, digitBits(counts, bits)+rest+float64(by.frontCost(rowBytes, len(rows)))/levelPrice)
			}
		}
		sum := 0.0
		for _, cost := range ownLength {
			sum += cost
		}
		keep(5, sum)
	}
	return textOf(names[:], best[:])
}

// digitBits returns the bits of symbols of so many bits by the digits that suit them best.
func digitBits(counts []int64, bits int) (sum float64) {
	ranked := rank(counts)
	digits, _ := digitsFor(counts, ranked, bits)
	var left int64
	for _, n := range counts {
		left += n
	}
	for _, d := range digits {
		sum += float64(left) * float64(d)
		for _, symbol := range ranked[:1<<d-1] {
			left -= counts[symbol]
		}
		ranked = ranked[1<<d-1:]
	}
	return sum + float64(left)*float64(bits)
}

// radixBits is digitBits, levels costing nothing, with digits of 2, 3, 4, 5, 6, 8, 11 and 16 values: five digits of three values take 8 bits, and so on.
func radixBits(counts []int64, bits int) float64 {
	ranked, beyond := rank(counts), []float64{float64(sum(counts))}
	for _, symbol := range ranked[:min(len(ranked), maxLevels*15)] {
		beyond = append(beyond, beyond[len(beyond)-1]-float64(counts[symbol]))
	}
	cost := make([]float64, len(beyond)) // of the elements of rank i and above
	for i, n := range beyond {
		cost[i] = n * float64(bits)
	}
	for range maxLevels {
		next := slices.Clone(cost)
		for i, n := range beyond {
			next[i] = n * float64(bits)
			for values, length := range map[int]float64{2: 1, 3: 8. / 5, 4: 2, 5: 7. / 3, 6: 13. / 5, 8: 3, 11: 7. / 2, 16: 4} {
				if i+values-1 < len(beyond) {
					next[i] = min(next[i], n*length+cost[i+values-1])
				}
			}
		}
		cost = next
	}
	return cost[0]
}

// offsetCounts counts the symbols of a column, with the base within a symbol by which their entropy is the least.
func offsetCounts(column []counted, bits int) (best []int64) {
	least := math.Inf(1)
	for base := range 1 << (fineBits - bits) {
		counts := make([]int64, 1<<bits)
		countSymbols([][]counted{column}, []uint16{uint16(base)}, counts)
		if entropy := entropyOf(counts); entropy < least {
			best, least = counts, entropy
		}
	}
	return best
}

func entropyOf(counts []int64) (bits float64) {
	total := float64(sum(counts))
	for _, n := range counts {
		if n > 0 {
			bits += float64(n) * math.Log2(total/float64(n))
		}
	}
	return bits
}

// classesUpTo finds classes by all rows.
func classesUpTo(rows topRows, most int) *classed {
	c, of, r := oneClass(rows), make([]uint8, len(rows)), rand.New(rand.NewPCG(1, 2))
	for len(c.bases) < most {
		c.split(rows, of, r)
		for range classRounds {
			of, _ = c.assign(rows)
			c.improve(rows, of)
		}
		of, _ = c.assign(rows)
	}
	return c
}

func textOf(names []string, savings []float64) (text string) {
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %.1f", name, savings[i])
	}
	return text
}
