package rank

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Rows whose elements deviate from the columns' bases together, such as vectors of words that differ in length by how frequent the word is,
// form classes with bases of their own. These are found as k-means finds clusters, with the bits that a row takes for its distance: each row
// goes to the class that codes it shortest, and each class takes the bases that code its rows shortest. Classes double by splitting: each
// becomes two whose bases differ in the direction in which two of its rows do.

const (
	classRounds = 3 // of assignment and bases after each split
	// leastClassRows is the fewest rows, in the mean, of a class when classes are found.
	leastClassRows = 24
	// doubledGain is what twice as many classes must save, in thousandths of the row, of rows that they were not found by.
	doubledGain = 1
)

// classed are classes of rows, found without rotation.
type classed struct {
	bases [][]uint16 // by class and column, in units of 2^-fineBits
	price [1 << fineBits]float32
	bits  int // of the symbol
}

// count returns the number of classes: those of nil are one.
func (c *classed) count() int {
	if c == nil {
		return 1
	}
	return len(c.bases)
}

// frontCost returns what naming the classes of rows costs, in bits × levelPrice. The length field of rows from 256 bytes on has room.
func (c *classed) frontCost(rowBytes, rows int) int64 {
	if headerBytes(rowBytes) != 0 {
		return 0
	}
	return int64(log2(c.count()) * rows * levelPrice)
}

// basesFor returns the bases of all classes to begin training with: nil with rotation.
func (c *classed) basesFor(rotate int) []uint16 {
	if rotate != 0 {
		return nil
	}
	return slices.Concat(c.bases...)
}

// rowCost returns the bits of a row's symbols in a class.
func (c *classed) rowCost(row []uint16, class int) (sum float32) {
	bases := c.bases[class][:len(row)]
	for j, top := range row {
		sum += c.price[(top>>1-bases[j])&fineMask]
	}
	return sum
}

// assign returns the class of each row, and the bits of all symbols.
func (c *classed) assign(rows topRows) ([]uint8, float64) {
	of, total := make([]uint8, len(rows)), 0.0
	for i, row := range rows {
		least := c.rowCost(row, 0)
		for k := 1; k < len(c.bases); k++ {
			if cost := c.rowCost(row, k); cost < least {
				of[i], least = uint8(k), cost
			}
		}
		total += float64(least)
	}
	return of, total
}

// improve takes, for each class and column, the base that codes the class's rows shortest, and then the prices that follow.
func (c *classed) improve(rows topRows, of []uint8) {
	counts := make([]int64, 1<<c.bits)
	shift := fineBits - c.bits
	values := make([]uint16, 0, len(rows))
	for k, bases := range c.bases {
		for j := range bases {
			values = values[:0]
			for i, row := range rows {
				if int(of[i]) == k {
					values = append(values, row[j]>>1)
				}
			}
			s := baseSearch{bases[j], 0, func(base uint16) (sum float32) {
				for _, x := range values {
					sum += c.price[(x-base)&fineMask]
				}
				return sum
			}}
			s.least = s.cost(s.base)
			s.try(1 << (fineBits - 1)) // the other sign
			s.nearby(max(2<<shift, leastStep))
			bases[j] = s.base
			for _, x := range values {
				counts[(x-s.base)&fineMask>>shift]++
			}
		}
	}
	priceOf(counts, &c.price)
}

// split makes two classes of each. They differ by a third of what two rows of the class differ by in the median column.
func (c *classed) split(rows topRows, of []uint8, r *rand.Rand) {
	members := make([][]int, len(c.bases))
	for i, k := range of {
		members[k] = append(members[k], i)
	}
	var split [][]uint16
	for k, bases := range c.bases {
		in := members[k]
		if len(in) < 2 {
			in = []int{0, len(rows) - 1}
		}
		one := r.IntN(len(in))
		a, b := rows[in[one]], rows[in[(one+1+r.IntN(len(in)-1))%len(in)]]
		lower, upper := slices.Clone(bases), slices.Clone(bases)
		apart, sizes := make([]int, len(bases)), make([]int, len(bases))
		for j := range apart {
			// The difference modulo the sign, which is the topmost bit.
			const half = 1 << (fineBits - 1)
			apart[j] = (int(a[j]>>1)-int(b[j]>>1)+half/2)&(half-1) - half/2
			sizes[j] = max(apart[j], -apart[j])
		}
		slices.Sort(sizes)
		step := max(1, sizes[len(sizes)/2]/3)
		for j, d := range apart {
			by := uint16(step)
			if d < 0 {
				by = -by
			}
			lower[j], upper[j] = (bases[j]-by)&fineMask, (bases[j]+by)&fineMask
		}
		split = append(split, lower, upper)
	}
	c.bases = split
}

// findClasses returns classes of rows that take fewer bits than one class, or nil. It finds them by every other row, and judges them by those
// in between.
func findClasses(all topRows, rowBytes, elementBytes int) *classed {
	half := make([]topRows, 2)
	for i, row := range all.some(2 * searchElements) {
		half[i%2] = append(half[i%2], row)
	}
	rows, others := half[0], half[1]
	c := oneClass(rows)
	width := len(rows[0])
	stride := (width*elementBytes + 15) &^ 15
	most := min(maxClasses, maxClassBytes/stride, len(rows)/leastClassRows)
	_, least := c.assign(others)
	doubled := doubledGain * float64(len(others)*width*8*elementBytes) / 1000
	of := make([]uint8, len(rows))
	var best *classed
	r := rand.New(rand.NewPCG(1, 2))
	for failed := 0; failed < 2 && 2*len(c.bases) <= most; {
		c.split(rows, of, r)
		for range classRounds {
			of, _ = c.assign(rows)
			c.improve(rows, of)
		}
		of, _ = c.assign(rows)
		_, cost := c.assign(others)
		cost += float64(c.frontCost(rowBytes, len(others))) / levelPrice
		if failed++; cost < least-doubled {
			best, least, failed = &classed{slices.Clone(c.bases), c.price, c.bits}, cost, 0
		}
	}
	return best
}

// oneClass returns one class, with the symbol length by which the entropy of its symbols is the least.
func oneClass(rows topRows) *classed {
	columns := rows.columns(nil, 1, 0)
	best, least := &classed{}, math.Inf(1)
	var from []uint16
	rounds := basedRounds
	for _, bits := range []int{8, 10, 12} {
		c := &classed{bits: bits}
		bases, counts := trainBases(columns, bits, from, rounds)
		c.bases = [][]uint16{bases}
		priceOf(counts, &c.price)
		if _, cost := c.assign(rows); cost-float64(len(rows)*len(bases)*bits) < least {
			best, least = c, cost-float64(len(rows)*len(bases)*bits)
		}
		from, rounds = bases, laterRounds
	}
	return best
}
