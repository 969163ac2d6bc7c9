package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt is wrapped by errors for bytes of a log that are not those that were written.
var ErrCorrupt = errors.New("corrupt delta log")

// The layout of segments: docs/format/delta.md.
const (
	segmentMagic  = "TCDELTA\x01"
	segmentHeader = 60
	batchMagic    = "TCDB"
	batchHeader   = 32
	rowEntry      = 16
	// entryCompressed is set in the length of a row that is encoded.
	entryCompressed = 1 << 31
	// durableFlag is set in a batch that was synced before Append returned.
	durableFlag = 1
	// maxBatch bounds the bytes of a batch.
	maxBatch = 1 << 31
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of b, and update that of what sum is of and then b.
func checksum(b []byte) uint32           { return update(0, b) }
func update(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// header is what a segment begins with.
type header struct {
	table  [32]byte // pages.Manifest.Encoding: rows of another codec must not be taken for this one's
	number uint64   // of the segment
	first  uint64   // number of its first batch
}

func (h header) encode() []byte {
	le := binary.LittleEndian
	b := append([]byte(segmentMagic), h.table[:]...)
	b = le.AppendUint64(b, h.number)
	b = le.AppendUint64(b, h.first)
	return le.AppendUint32(b, checksum(b))
}

var errOther = errors.New("the log must be that of this table and codec")

// parseHeader checks the header of a segment of a table.
func parseHeader(b []byte, table [32]byte) (h header, err error) {
	le := binary.LittleEndian
	if len(b) < segmentHeader || string(b[:len(segmentMagic)-1]) != segmentMagic[:len(segmentMagic)-1] {
		return h, fmt.Errorf("%w: not a segment", ErrCorrupt)
	}
	if b[7] != segmentMagic[7] {
		return h, fmt.Errorf("%w: version (%d) must be %d", ErrCorrupt, b[7], segmentMagic[7])
	}
	h = header{[32]byte(b[8:40]), le.Uint64(b[40:]), le.Uint64(b[48:])}
	if h.table != table {
		return h, errOther
	}
	if !bytes.Equal(h.encode(), b[:segmentHeader]) {
		return h, fmt.Errorf("%w: header: wrong checksum", ErrCorrupt)
	}
	return h, nil
}

// Row is a version of a row.
type Row struct {
	Row int64
	// Stored is the row as it is stored: encoded by the table's codec if Compressed, raw otherwise.
	Stored     []byte
	Compressed bool
}

// encodeBatch returns a batch. behind is how many batches before it may not be on the drive yet. REQUIRES: at least one row, and at most maxBatch bytes.
func encodeBatch(b []byte, number uint64, durable bool, behind uint32, rows []Row) []byte {
	le := binary.LittleEndian
	from := len(b)
	body := rowEntry * len(rows)
	for _, r := range rows {
		body += len(r.Stored)
	}
	b = append(b, batchMagic...)
	b = le.AppendUint32(b, uint32(len(rows)))
	b = le.AppendUint32(b, uint32(body))
	b = append(b, flags(durable), 0, 0, 0)
	b = le.AppendUint64(b, number)
	b = le.AppendUint32(b, behind)
	// The checksums of the rows stand in the directory, so that of the batch need not cover the rows' bytes.
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, r := range rows {
		length := uint32(len(r.Stored))
		if r.Compressed {
			length |= entryCompressed
		}
		b = le.AppendUint64(b, uint64(r.Row))
		b = le.AppendUint32(b, length)
		b = le.AppendUint32(b, checksum(r.Stored))
	}
	le.PutUint32(b[at:], update(checksum(b[from:at]), b[at+4:]))
	for _, r := range rows {
		b = append(b, r.Stored...)
	}
	return b
}

func flags(durable bool) byte {
	if durable {
		return durableFlag
	}
	return 0
}

// batch is a parsed batch. entries and stored refer to the bytes that it was parsed from.
type batch struct {
	number  uint64
	durable bool
	behind  uint32 // batches before it that may not have been on the drive when it was written
	rows    int
	entries []byte
	stored  []byte
	bytes   int // of the whole batch
}

// parseBatch parses the batch at the front of b and checks all of it.
func parseBatch(b []byte, rows int64, rowBytes int) (batch, error) {
	fail := func(format string, args ...any) (batch, error) {
		return batch{}, fmt.Errorf("%w: batch: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	le := binary.LittleEndian
	if len(b) < batchHeader || string(b[:4]) != batchMagic {
		return fail("no beginning")
	}
	n, body := int64(le.Uint32(b[4:])), int64(le.Uint32(b[8:]))
	if n < 1 || body > maxBatch || rowEntry*n > body || batchHeader+body > int64(len(b)) {
		return fail("%d rows in %d bytes, of which %d are there", n, body, len(b)-batchHeader)
	}
	x := batch{number: le.Uint64(b[16:]), durable: b[12]&durableFlag != 0, behind: le.Uint32(b[24:]), rows: int(n), bytes: batchHeader + int(body)}
	x.entries, x.stored = b[batchHeader:][:rowEntry*n], b[batchHeader+rowEntry*n:][:body-rowEntry*n]
	if update(checksum(b[:28]), x.entries) != le.Uint32(b[28:]) {
		return fail("wrong checksum")
	}
	if b[12]&^durableFlag != 0 || b[13]|b[14]|b[15] != 0 {
		return fail("unknown flags")
	}
	at := 0
	for i := range x.rows {
		e := x.entry(i)
		if e.row < 0 || e.row >= rows || e.compressed && e.length >= rowBytes || !e.compressed && e.length != rowBytes || e.length > len(x.stored)-at {
			return fail("row %d has %d bytes of %d", e.row, e.length, rowBytes)
		}
		if checksum(x.stored[at:][:e.length]) != e.sum {
			return fail("row %d: wrong checksum", e.row)
		}
		at += e.length
	}
	if at != len(x.stored) {
		return fail("rows (%d bytes) must have %d", at, len(x.stored))
	}
	return x, nil
}

// entry is a row of a batch.
type entry struct {
	row        int64
	length     int
	compressed bool
	sum        uint32
}

func (x batch) entry(i int) entry {
	le := binary.LittleEndian
	b := x.entries[rowEntry*i:]
	length := le.Uint32(b[8:])
	return entry{int64(le.Uint64(b)), int(length &^ entryCompressed), length&entryCompressed != 0, le.Uint32(b[12:])}
}

// durableBehind reports whether b has, anywhere, a sound durable batch that was written when the batch of this number was on the drive.
func durableBehind(b []byte, number uint64, rows int64, rowBytes int) bool {
	for {
		i := bytes.Index(b, []byte(batchMagic))
		if i < 0 {
			return false
		}
		if x, err := parseBatch(b[i:], rows, rowBytes); err == nil && x.durable && x.number > number && x.number-number > uint64(x.behind) {
			return true
		}
		b = b[i+1:]
	}
}

// batchBytes returns how long the batch at the front of b says that it is, 0 if too little of it is there.
func batchBytes(b []byte) int64 {
	if len(b) < batchHeader || string(b[:4]) != batchMagic {
		return 0
	}
	return batchHeader + int64(binary.LittleEndian.Uint32(b[8:]))
}
