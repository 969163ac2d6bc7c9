package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt is wrapped by errors for pages whose bytes are not those that were written.
var ErrCorrupt = errors.New("corrupt page")

// The layout of a page: docs/format/pages.md.
const (
	pageMagic   = "TCPG"
	pageVersion = 1
	pageHeader  = 32
	// rowAlign is the alignment of rows in a page that went through no second stage, so that kernels can decode them in place.
	rowAlign = 4
	// entryCompressed is set in the directory entry of a row that is encoded. The other bits are where the row ends.
	entryCompressed = 1 << 31
)

func alignRow(n int) int { return (n + rowAlign - 1) &^ (rowAlign - 1) }

// longestPage is the longest page that a table with such rows can have.
func longestPage(pageBytes, rowBytes int) int { return max(pageBytes, pageHeader+4+rowBytes) }

// pageLength returns the length, before the second stage, of a page of so many rows whose aligned lengths have this sum.
func pageLength(rows, aligned int) int { return pageHeader + 4*rows + aligned }

// appendPage appends a page of rows to b, the first of which has this position. stored are the rows in stored form, back to back, each at a multiple of rowAlign; entries are
// their lengths, with entryCompressed set for encoded ones. stage compresses the page if that saves enough; nil: not at all.
func appendPage(b []byte, position int64, entries []uint32, stored []byte, stage *stager) []byte {
	le := binary.LittleEndian
	from := len(b)
	b = append(b, make([]byte, pageHeader)...)
	at := 0
	for _, e := range entries {
		end := at + int(e&^entryCompressed)
		b = le.AppendUint32(b, uint32(end)|e&entryCompressed)
		at = alignRow(end)
	}
	b = append(b, stored[:at]...)
	body := len(b) - from - pageHeader
	by := StageNone
	if stage != nil {
		b, by = stage.compress(b, from+pageHeader)
	}
	h := b[from:]
	copy(h, pageMagic)
	h[4], h[5] = pageVersion, byte(by)
	le.PutUint64(h[8:], uint64(position))
	le.PutUint32(h[16:], uint32(len(entries)))
	le.PutUint32(h[20:], uint32(body))
	le.PutUint32(h[24:], uint32(len(h)-pageHeader))
	le.PutUint32(h[28:], pageSum(h))
	return b
}

// pageSum returns the checksum of a page: CRC-32C of its header before the checksum, and of all after the header.
func pageSum(page []byte) uint32 {
	return crc32.Update(checksum(page[:28]), castagnoli, page[pageHeader:])
}

// parsedPage is a decoded page. It refers to the memory that it was parsed from.
type parsedPage struct {
	rowBytes int
	rows     int
	ends     []byte // the directory
	stored   []byte // the rows
}

// parsePage checks the bytes of a page, whose first row must have this position, and undoes the second stage. b must be the page, no more
// and no less. scratch is memory that the second stage may write to; it is returned, longer if that was needed. The page refers to b or to
// scratch. Errors wrap ErrCorrupt.
func parsePage(b []byte, position int64, rowBytes int, scratch []byte) (parsedPage, []byte, error) {
	fail := func(format string, args ...any) (parsedPage, []byte, error) {
		return parsedPage{}, scratch, fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	le := binary.LittleEndian
	switch {
	case len(b) < pageHeader:
		return fail("%d bytes must be at least %d", len(b), pageHeader)
	case string(b[:4]) != pageMagic:
		return fail("begins with %q, must begin with %q", b[:4], pageMagic)
	case b[4] != pageVersion:
		return fail("version (%d) must be %d", b[4], pageVersion)
	case int64(le.Uint32(b[24:])) != int64(len(b)-pageHeader):
		return fail("%d bytes must be %d", len(b), pageHeader+int64(le.Uint32(b[24:])))
	case pageSum(b) != le.Uint32(b[28:]):
		return fail("wrong checksum")
	case le.Uint64(b[8:]) != uint64(position):
		return fail("position of the first row (%d) must be %d", le.Uint64(b[8:]), position)
	case !Stage(b[5]).valid() || b[6]|b[7] != 0:
		return fail("unknown flags")
	}
	rows, body := int64(le.Uint32(b[16:])), int64(le.Uint32(b[20:]))
	if most := int64(longestPage(MaxPageBytes, rowBytes)) - pageHeader; body > most || 4*rows > body {
		return fail("%d rows in %d bytes must fit in %d", rows, body, most)
	}
	contents := b[pageHeader:]
	if stage := Stage(b[5]); stage != StageNone {
		var err error
		if scratch, err = stage.expand(scratch, contents, int(body)); err != nil {
			return fail("%v", err)
		}
		contents = scratch
	}
	if int64(len(contents)) != body {
		return fail("contents (%d bytes) must have %d", len(contents), body)
	}
	return parsedPage{rowBytes: rowBytes, rows: int(rows), ends: contents[:4*rows], stored: contents[4*rows:]}, scratch, nil
}

// Rows returns the number of rows.
func (p parsedPage) Rows() int { return p.rows }

// Row returns row i of the page as it is stored, which is raw unless compressed. It must not be changed.
func (p parsedPage) Row(i int) (stored []byte, compressed bool, err error) {
	if uint(i) >= uint(p.rows) {
		return nil, false, fmt.Errorf("%w: row (%d) must be below %d", ErrCorrupt, i, p.rows)
	}
	le := binary.LittleEndian
	from := 0
	if i > 0 {
		from = alignRow(int(le.Uint32(p.ends[4*i-4:]) &^ entryCompressed))
	}
	e := le.Uint32(p.ends[4*i:])
	to := int(e &^ entryCompressed)
	compressed = e&entryCompressed != 0
	if to < from || to > len(p.stored) {
		return nil, false, fmt.Errorf("%w: row %d of the page ends at %d, must from %d to %d", ErrCorrupt, i, to, from, len(p.stored))
	}
	if n := to - from; compressed && n >= p.rowBytes || !compressed && n != p.rowBytes {
		return nil, false, fmt.Errorf("%w: row %d of the page has %d bytes stored, of %d", ErrCorrupt, i, n, p.rowBytes)
	}
	return p.stored[from:to:to], compressed, nil
}
