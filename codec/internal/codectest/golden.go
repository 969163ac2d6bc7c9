package codectest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// Golden tests a codec against testdata/golden.txt of the test's package. A line is metadata, row and stored row in
// hexadecimal. With -update it writes the file from the given codecs and rows, one row each.
func Golden(t *testing.T, unmarshal func([]byte) (codec.Codec, error), codecs []codec.Codec, rows [][]byte) {
	name := filepath.Join("testdata", "golden.txt")
	if *update {
		var out bytes.Buffer
		for i, c := range codecs {
			metadata, err := c.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, c.EncodeBound())
			n, err := c.Encode(dst, rows[i])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%x %x %x\n", metadata, rows[i], dst[:n])
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); lines++ {
		var parts [3][]byte
		for i, field := range strings.Fields(s.Text()) {
			if parts[i], err = hex.DecodeString(field); err != nil {
				t.Fatal(err)
			}
		}
		c, err := unmarshal(parts[0])
		if err != nil {
			t.Fatalf("line %d: %v", lines+1, err)
		}
		dst, row := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
		if n, err := c.Encode(dst, parts[1]); err != nil || !bytes.Equal(dst[:n], parts[2]) {
			t.Errorf("line %d: encoded to %x, %v", lines+1, dst[:n], err)
		}
		if n, err := c.Decode(row, parts[2]); err != nil || n != len(parts[2]) || !bytes.Equal(row, parts[1]) {
			t.Errorf("line %d: decoded to %x, %v", lines+1, row, err)
		}
		again, err := c.MarshalBinary()
		if err != nil || !bytes.Equal(again, parts[0]) {
			t.Errorf("line %d: metadata come back as %x, %v", lines+1, again, err)
		}
	}
	if lines == 0 {
		t.Error("no golden rows")
	}
}
