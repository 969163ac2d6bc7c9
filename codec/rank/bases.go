package rank

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A base is subtracted from each element of its column, after rotation and modulo 2^W, before the element is split into symbol and
// rest. It is a multiple of 2^(W-16). Columns of different scales, offsets or signs so have the same frequent symbols, and one set of
// digits serves them all. There may be several classes of rows, each with bases of its own.

const (
	// maxBasedRow is the longest row, in bytes, of tables with bases: the length of its stored form leaves 4 bits of the length field.
	maxBasedRow = 4096
	maxClasses  = 16
	// maxClassBytes is the longest device metadata, in bytes, of the bases of several classes: blocks keep them in shared memory.
	maxClassBytes = 8192
)

// setBases checks the shape's bases and lays them out as rows of elements.
func (c *Codec) setBases(classes [][]uint16) error {
	if classes == nil {
		return nil
	}
	size := c.shape.ElementBytes
	if size > 4 {
		return fmt.Errorf("rank: element (%d bytes) must be 2 or 4 with bases", size)
	}
	if c.rowBytes > maxBasedRow {
		return fmt.Errorf("rank: row (%d bytes) must be at most %d with bases", c.rowBytes, maxBasedRow)
	}
	for c.classBits < 4 && 1<<c.classBits < len(classes) {
		c.classBits++
	}
	if len(classes) != 1<<c.classBits {
		return fmt.Errorf("rank: classes (%d) must be 1, 2, 4, 8 or %d", len(classes), maxClasses)
	}
	c.baseStride = (c.elements*size + 15) &^ 15
	if n := len(classes) * c.baseStride; len(classes) > 1 && n > maxClassBytes {
		return fmt.Errorf("rank: bases of %d classes (%d bytes) must have at most %d", len(classes), n, maxClassBytes)
	}
	c.bases = make([]byte, len(classes)*c.baseStride)
	for k, bases := range classes {
		if len(bases) != c.elements {
			return fmt.Errorf("rank: bases (%d) must be as many as the elements of a row (%d)", len(bases), c.elements)
		}
		for i, b := range bases {
			binary.LittleEndian.PutUint16(c.bases[k*c.baseStride+(i+1)*size-2:], b)
		}
		c.shape.Bases = append(c.shape.Bases, slices.Clone(bases))
	}
	c.joinRotate = 0 // addBases rotates
	return nil
}

// addBases adds the bases of a class to elements that are still rotated, and rotates them back. row is the part of a row that begins
// at byte at.
func (c *Codec) addBases(row []byte, class, at int) {
	one, width := uint64(low32), 32
	if c.shape.ElementBytes == 2 {
		one, width = low16, 16
	}
	top, bases := one<<(width-1), c.bases[class*c.baseStride+at:]
	add := func(x, base uint64) uint64 {
		x = (x&^top + base&^top) ^ (x^base)&top // no carry leaves an element
		if c.shape.Rotate != 0 {
			x = x>>1&^top | x&one<<(width-1)
		}
		return x
	}
	for len(row) >= 8 {
		binary.LittleEndian.PutUint64(row, add(binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint64(bases)))
		row, bases = row[8:], bases[8:]
	}
	if len(row) > 0 {
		var x [8]byte
		copy(x[:], row)
		binary.LittleEndian.PutUint64(x[:], add(binary.LittleEndian.Uint64(x[:]), binary.LittleEndian.Uint64(bases)))
		copy(row, x[:])
	}
}
