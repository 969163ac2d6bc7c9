package pages

import (
	"encoding/binary"
	"fmt"
)

// index says which page holds which positions, and the length and checksum of every page. It takes 12 bytes of memory a group and 8 a page.
// It is immutable and safe for concurrent use.
type index struct {
	rows      int64
	groupRows int64
	groups    []indexGroup
	pages     []indexPage
}

type indexGroup struct{ first, pageRows uint32 } // the group's first page; rows of each of its pages but the last
type indexPage struct{ length, sum uint32 }

// The format: docs/format/pages.md.
func indexBytes(groups, pages int64) int64 { return 4*groups + 8*pages }

// newIndex parses the index of a manifest's table.
func newIndex(m *Manifest, b []byte) (*index, error) {
	x := &index{rows: m.Rows, groupRows: int64(m.GroupRows)}
	groups := m.groups()
	if int64(len(b)) != indexBytes(groups, int64(m.Pages)) {
		return nil, fmt.Errorf("pages: index (%d bytes) must have %d", len(b), indexBytes(groups, int64(m.Pages)))
	}
	le := binary.LittleEndian
	x.groups = make([]indexGroup, groups)
	next := int64(0)
	for g := range x.groups {
		pageRows := int64(le.Uint32(b[4*g:]))
		rows := min(x.groupRows, x.rows-int64(g)*x.groupRows)
		if pageRows < 1 || pageRows > rows {
			return nil, fmt.Errorf("pages: index: rows of a page of group %d (%d) must be 1 to %d", g, pageRows, rows)
		}
		x.groups[g] = indexGroup{uint32(next), uint32(pageRows)}
		if next += (rows + pageRows - 1) / pageRows; next > int64(m.Pages) {
			break
		}
	}
	if next != int64(m.Pages) {
		return nil, fmt.Errorf("pages: index: pages (%d) must be %d", next, m.Pages)
	}
	x.pages = make([]indexPage, m.Pages)
	b = b[4*groups:]
	total := int64(0)
	for i := range x.pages {
		p := indexPage{le.Uint32(b[8*i:]), le.Uint32(b[8*i+4:])}
		if p.length < pageHeader || int64(p.length) > int64(m.LongestPage) {
			return nil, fmt.Errorf("pages: index: length of page %d (%d) must be %d to %d", i, p.length, pageHeader, m.LongestPage)
		}
		x.pages[i] = p
		total += int64(p.length)
	}
	if total != m.PageTotal {
		return nil, fmt.Errorf("pages: index: bytes of all pages (%d) must be %d", total, m.PageTotal)
	}
	return x, nil
}

// memoryBytes returns the memory that the index takes.
func (x *index) memoryBytes() int64 { return int64(8*len(x.groups) + 8*len(x.pages)) }

// IndexMemory returns about the memory that finding rows takes of a table of so many rows of so many bytes, in so many pages, that is not ordered.
func IndexMemory(rows int64, rowBytes int, pages int64) int64 {
	group := int64(groupRowsFor(rowBytes))
	return 8*((rows+group-1)/group) + 8*pages
}

// locate returns the page that holds a position, and which of the page's rows it is. REQUIRES: 0 ≤ position < rows.
func (x *index) locate(position int64) (page uint32, row int) {
	g := x.groups[position/x.groupRows]
	in := uint32(position % x.groupRows)
	return g.first + in/g.pageRows, int(in % g.pageRows)
}

// positions returns the positions [from, to) that a page holds. REQUIRES: page exists.
func (x *index) positions(page uint32) (from, to int64) {
	lo, hi := 0, len(x.groups) // the last group whose first page is not behind page
	for lo+1 < hi {
		if mid := (lo + hi) / 2; x.groups[mid].first <= page {
			lo = mid
		} else {
			hi = mid
		}
	}
	begin := int64(lo) * x.groupRows
	end := min(begin+x.groupRows, x.rows)
	from = begin + int64(page-x.groups[lo].first)*int64(x.groups[lo].pageRows)
	return from, min(from+int64(x.groups[lo].pageRows), end)
}

// length returns the bytes of a page. REQUIRES: page exists.
func (x *index) length(page uint32) int { return int(x.pages[page].length) }

// parse is parsePage of the page of this number. It also finds that a sound page is not the one that the table was packed with.
// REQUIRES: page exists.
func (x *index) parse(page uint32, b []byte, rowBytes int, scratch []byte) (parsedPage, []byte, error) {
	want := x.pages[page]
	from, to := x.positions(page)
	var err error
	var p parsedPage
	switch {
	case len(b) != int(want.length):
		err = fmt.Errorf("%w: %d bytes must be %d", ErrCorrupt, len(b), want.length)
	case binary.LittleEndian.Uint32(b[28:]) != want.sum:
		err = fmt.Errorf("%w: checksum (%#08x) must be %#08x, as the index says", ErrCorrupt, binary.LittleEndian.Uint32(b[28:]), want.sum)
	default:
		p, scratch, err = parsePage(b, from, rowBytes, scratch)
	}
	if err == nil && int64(p.rows) != to-from {
		err = fmt.Errorf("%w: rows (%d) must be %d", ErrCorrupt, p.rows, to-from)
	}
	return p, scratch, err
}

// indexBuilder collects an index while a table is packed.
type indexBuilder struct {
	groups []uint32 // rows of a page
	pages  []indexPage
	total  int64
	// longest is the longest page, also before the second stage.
	longest int
}

// add appends a group, whose pages are given with their lengths.
func (x *indexBuilder) add(g *packedGroup) {
	x.groups = append(x.groups, uint32(g.pageRows))
	x.longest = max(x.longest, g.longest)
	for _, p := range g.pages {
		x.pages = append(x.pages, indexPage{uint32(len(p)), binary.LittleEndian.Uint32(p[28:])})
		x.total += int64(len(p))
	}
}

// encode returns the bytes of the index.
func (x *indexBuilder) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, indexBytes(int64(len(x.groups)), int64(len(x.pages))))
	for _, g := range x.groups {
		b = le.AppendUint32(b, g)
	}
	for _, p := range x.pages {
		b = le.AppendUint32(le.AppendUint32(b, p.length), p.sum)
	}
	return b
}
