package rank

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/internal/npy"
)

// realTable reads a table of the real inputs, or skips the test where they are not.
func realTable(t *testing.T, file string) (table []byte, rowBytes int) {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	r, err := npy.Open(filepath.Join(dir, file), 2, "features")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("real tables are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	table = make([]byte, r.Rows()*r.RowBytes())
	for rest := table; len(rest) > 0; {
		n, err := r.Read(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n*r.RowBytes():]
	}
	return table, r.RowBytes()
}

// bfloat16 rounds float32 elements to nearest even; none of the tables has NaNs.
func bfloat16(table []byte) []byte {
	half := make([]byte, 0, len(table)/2)
	for ; len(table) > 0; table = table[4:] {
		u := binary.LittleEndian.Uint32(table)
		half = binary.LittleEndian.AppendUint16(half, uint16((u+0x7fff+u>>16&1)>>16))
	}
	return half
}

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings, in % of bytes, against what planes of
// exponents alone saved in a prototype, or more.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for _, c := range []struct {
		file         string
		elementBytes int
		bfloat16     bool
		least        float64
	}{
		{"ncf_user.npy", 4, false, 16.4}, {"ncf_user.npy", 2, true, 32.5},
		{"reddit.npz", 4, false, 28.5}, {"reddit.npz", 2, true, 57.5},
		{"pubmed_tx.npz", 4, false, 32}, {"sz_testdouble.npy", 8, false, 15.5},
	} {
		name := c.file
		if c.bfloat16 {
			name += " as bfloat16"
		}
		t.Run(name, func(t *testing.T) {
			table, rowBytes := realTable(t, c.file)
			if c.bfloat16 {
				table, rowBytes = bfloat16(table), rowBytes/2
			}
			codec, err := Train(table, rowBytes, c.elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			saving := 100 * (1 - float64(roundTrip(t, codec, table))/float64(len(table)))
			s := codec.Shape()
			t.Logf("saving %.2f %%: rotated by %d, symbols of %d bits, digits %v", saving, s.Rotate, s.SymbolBits, s.Digits)
			if saving < c.least {
				t.Errorf("saving %.2f %%, want at least %.1f %%", saving, c.least)
			}
		})
	}
}
