package transfer

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// A content is frequent if at least frequentLeast rows have it, and at least one of frequentShare rows. Examples
	// are rows of zeros, and rows that still have an initial value. Such rows share a slot even if few other rows are
	// equal, as a cache of any size holds several of them.
	frequentShare = 32
	frequentLeast = 8
	// frequentRow is the least length, in bytes, of rows whose frequent contents are looked for. The slot of a shorter
	// row is no longer than what else a cached row takes.
	frequentRow = 32
	// frequentBytes bounds how many rows can be found to have a frequent content: one for each frequentBytes bytes of
	// the table. This bounds the memory of groups to 1/20 of the table and a bit a row.
	frequentBytes = 80
	// frequentPart is how many rows a goroutine compares at a time, a whole number of bitset words.
	frequentPart = 1 << 16
)

// sampledRow is a row of the sample. next says that the row behind it has the same hash.
type sampledRow struct {
	hash uint64
	row  int64
	next bool
}

// findFrequent compares all rows with the examples, which are at most 2 × frequentShare rows with different contents.
// It returns a group for each content that proves to be frequent. REQUIRES: the rows are not encoded yet.
func (a *duplicates) findFrequent(workers interruptible, examples []int64) grouped {
	t, rows := a.t, a.t.rows
	mem, stride, rowBytes := t.host.Mem.Bytes(), t.host.Stride, t.rowBytes
	heads := make([]uint64, len(examples))
	for i, row := range examples {
		heads[i] = binary.LittleEndian.Uint64(mem[row*stride:])
	}
	g := &groups{ranked: ranked{rows: newBitset(rows)}}
	parts := make([][]uint8, (rows+frequentPart-1)/frequentPart) // for each row found, its index in examples
	inBackground(func() {
		workers.For(len(parts), 1, func(from, to int) {
			for part := from; part < to; part++ {
				begin, end := int64(part)*frequentPart, min(rows, int64(part+1)*frequentPart)
				most := int((end - begin) * int64(rowBytes) / frequentBytes)
				for row := begin; row < end && len(parts[part]) < most; row++ {
					bytesOf := mem[row*stride:][:rowBytes]
					head := binary.LittleEndian.Uint64(bytesOf)
					for i, h := range heads {
						if h == head && bytes.Equal(bytesOf, mem[examples[i]*stride:][:rowBytes]) && !t.lacksTail(row, rowBytes) {
							g.rows.set(row)
							parts[part] = append(parts[part], uint8(i))
							break
						}
					}
				}
			}
		})
	}).Wait()
	if workers.ctx.Err() != nil {
		return grouped{}
	}
	return grouped{groups: g}.number(slices.Concat(parts...), rows)
}

// number makes groups of the rows that are set in f. contents names, for these rows in order, one of 256 contents
// each. Groups are numbered in the order of their first rows. Only groups of frequent contents are returned.
func (f grouped) number(contents []uint8, rows int64) grouped {
	var counts [256]uint32
	for _, c := range contents {
		counts[c]++
	}
	f.group, f.sizes = make([]uint32, len(contents)), []uint32{0}
	var numbers [256]uint32
	i := 0
	for w, word := range f.rows {
		for ; word != 0; word &= word - 1 {
			c := contents[i]
			if numbers[c] == 0 {
				f.sizes, f.of = append(f.sizes, counts[c]), append(f.of, int64(w)<<6+int64(bits.TrailingZeros64(word)))
				numbers[c] = uint32(len(f.of))
			}
			f.group[i] = numbers[c]
			i++
		}
	}
	return f.frequent(rows)
}

// frequent returns the groups of contents that are frequent in a table of the given rows.
func (f grouped) frequent(rows int64) (kept grouped) {
	numbers := make([]uint32, len(f.sizes))
	g := &groups{ranked: ranked{rows: newBitset(rows)}, sizes: []uint32{0}}
	for id, size := range f.sizes {
		if id > 0 && size >= frequentLeast && int64(size)*frequentShare >= rows {
			g.sizes, kept.of = append(g.sizes, size), append(kept.of, f.of[id-1])
			numbers[id] = uint32(len(kept.of))
		}
	}
	if len(kept.of) == 0 {
		return grouped{}
	}
	i := 0
	for w, word := range f.rows {
		for ; word != 0; word &= word - 1 {
			if number := numbers[f.group[i]]; number != 0 {
				g.rows[w] |= word & -word
				g.group = append(g.group, number)
			}
			i++
		}
	}
	kept.groups, kept.n = g, g.rank()
	return kept
}
