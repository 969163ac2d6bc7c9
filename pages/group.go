package pages

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// groupBytes is the memory that the rows of a group take before compression, if they are not shorter than groupBytes ÷ maxGroupRows. Tests set it.
var groupBytes = 16 << 20

// groupRowsFor returns Manifest.GroupRows for rows of this length.
func groupRowsFor(rowBytes int) int { return max(1, min(groupBytes/rowBytes, maxGroupRows)) }

// packedGroup is a group whose pages are made.
type packedGroup struct {
	pageRows       int
	pages          [][]byte
	longest        int // the longest page, also before the second stage
	stored, raw    int64
	memory         []byte // that pages lie in
	storedRows     []byte
	entries, alone []uint32
}

// packer makes pages of rows. It is not safe for concurrent use.
type packer struct {
	codec     codec.Codec // nil: rows stay raw
	rowBytes  int
	pageBytes int
	stage     *stager
}

// pack makes the pages of a group from its rows, which lie back to back; the first of them has this position. g's memory is used again.
func (p *packer) pack(g *packedGroup, position int64, rows []byte) error {
	n := len(rows) / p.rowBytes
	bound := n * alignRow(p.rowBytes)
	if p.codec != nil {
		bound += p.codec.EncodeBound()
	}
	if cap(g.storedRows) < bound {
		g.storedRows = make([]byte, bound)
	}
	stored := g.storedRows[:bound]
	g.entries, g.stored, g.raw = g.entries[:0], 0, 0
	at := 0
	for i := range n {
		row := rows[i*p.rowBytes:][:p.rowBytes]
		entry, err := p.store(stored[at:], row)
		if err != nil {
			return fmt.Errorf("pages: row %d of the group: %w", i, err)
		}
		length := int(entry &^ entryCompressed)
		if entry&entryCompressed == 0 {
			g.raw++
		}
		g.stored += int64(length)
		g.entries = append(g.entries, entry)
		end := alignRow(at + length)
		clear(stored[at+length : end])
		at = end
	}
	g.pageRows = p.pageRows(g, at)
	g.paginate(p, position, stored)
	return nil
}

// store writes the stored form of a row to the front of dst and returns its directory entry, which has its length in place of its end.
func (p *packer) store(dst, row []byte) (entry uint32, err error) {
	if p.codec != nil {
		n, err := p.codec.Encode(dst, row)
		if err == nil {
			return uint32(n) | entryCompressed, nil
		}
		if !errors.Is(err, codec.ErrIncompressible) {
			return 0, err
		}
	}
	return uint32(copy(dst, row)), nil
}

// pageRows returns the most rows of a page so that no page of the group, which has so many bytes of aligned rows, is longer than pageBytes,
// unless that were less than one row.
func (p *packer) pageRows(g *packedGroup, aligned int) int {
	n := len(g.entries)
	ends := g.alone[:0] // where rows end
	at := uint32(0)
	for _, e := range g.entries {
		at += uint32(alignRow(int(e &^ entryCompressed)))
		ends = append(ends, at)
	}
	g.alone = ends
	fits := func(rows int) bool {
		begin := uint32(0)
		for from := 0; from < n; from += rows {
			to := min(from+rows, n)
			if pageLength(to-from, int(ends[to-1]-begin)) > p.pageBytes {
				return false
			}
			begin = ends[to-1]
		}
		return true
	}
	pages := max(1, (aligned+4*n)/(p.pageBytes-pageHeader))
	for {
		rows := max(1, (n+pages-1)/pages)
		if rows == 1 || fits(rows) {
			return rows
		}
		pages = max(pages+1, pages+pages/32)
	}
}

// paginate writes the pages of a group to its memory.
func (g *packedGroup) paginate(p *packer, position int64, stored []byte) {
	g.pages, g.memory, g.longest = g.pages[:0], g.memory[:0], 0
	var starts []int
	for from, at := 0, 0; from < len(g.entries); from += g.pageRows {
		entries := g.entries[from:min(from+g.pageRows, len(g.entries))]
		length := 0
		for _, e := range entries {
			length += alignRow(int(e &^ entryCompressed))
		}
		g.longest = max(g.longest, pageLength(len(entries), length))
		starts = append(starts, len(g.memory))
		g.memory = appendPage(g.memory, position+int64(from), entries, stored[at:], p.stage)
		at += length
	}
	starts = append(starts, len(g.memory))
	for i := range len(starts) - 1 {
		g.pages = append(g.pages, g.memory[starts[i]:starts[i+1]:starts[i+1]])
	}
}
