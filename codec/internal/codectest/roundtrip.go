package codectest

import (
	"bytes"

	"github.com/tensorcache/tensorcache/codec"
)

// RoundTrip encodes and decodes the rows of a table, and returns the bytes that they take. Rows that do not shrink take their own length.
func RoundTrip(t interface{ Fatalf(string, ...any) }, c codec.Codec, table []byte) (stored int) {
	dst, got := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
	for r := 0; r < len(table); r += c.RowBytes() {
		row := table[r:][:c.RowBytes()]
		n, err := c.Encode(dst, row)
		if err == codec.ErrIncompressible {
			stored += c.RowBytes()
			continue
		}
		if m, err := c.Decode(got, dst[:n:n]); err != nil || m != n || !bytes.Equal(got, row) {
			t.Fatalf("row at %d: %d of %d bytes, %v", r, m, n, err)
		}
		if m, err := c.Stored(dst[:n:n]); err != nil || m != n {
			t.Fatalf("row at %d: Stored = %d, %v, want %d", r, m, err, n)
		}
		stored += n
	}
	return stored
}
