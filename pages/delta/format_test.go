package delta

import (
	"encoding/hex"
	"testing"
)

// TestFormat_Golden: a segment is byte for byte what it was.
func TestFormat_Golden(t *testing.T) {
	h := header{table: [32]byte{1, 2, 3}, number: 4, first: 5}
	b := encodeBatch(h.encode(), 5, true, 0, []Row{{7, []byte("abc"), true}, {8, []byte("raw row!"), false}})
	const want = "544344454c544101" + "0102030000000000000000000000000000000000000000000000000000000000" + "0400000000000000" + "0500000000000000" + "bb57553a" +
		"54434442" + "02000000" + "2b000000" + "01000000" + "0500000000000000" + "00000000" + "de1b3af6" +
		"0700000000000000" + "03000080" + "b73f4b36" + "0800000000000000" + "08000000" + "d89b3623" +
		"616263" + "72617720726f7721"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s\nis not what earlier versions wrote:\n%s", got, want)
	}
}
