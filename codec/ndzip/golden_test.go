package ndzip

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestEncode_GoldenFiles compares rows with files that ndzip's own programs wrote for one-dimensional arrays. Such a file is
// a row codec's output for rows of 4096 elements, in a frame:
//
//	+------------------------+---------+-------+-------+-----+----------------+
//	| end of each row,       | padding | row 0 | row 1 | ... | elements left  |
//	| uint32, in words,      | to W    |       |       |     | over, raw      |
//	| from row 0 on          |         |       |       |     |                |
//	+------------------------+---------+-------+-------+-----+----------------+
func TestEncode_GoldenFiles(t *testing.T) {
	for file, of := range map[string]dtype.Type{"sz_testfloat": dtype.Float32, "sz_testdouble": dtype.Float64, "ncf_user": dtype.Float32} {
		t.Run(file, func(t *testing.T) {
			data, _ := codectest.Table(t, file+".npy")
			golden := codectest.File(t, "golden", file+".ndzip")
			word := of.Size()
			rowBytes := 4096 * word
			c, err := New(of, rowBytes)
			if err != nil {
				t.Fatal(err)
			}
			rows := len(data) / rowBytes
			body := golden[(4*rows+word-1)/word*word:]
			dst, back := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
			at := 0
			for i := range rows {
				end := int(binary.LittleEndian.Uint32(golden[4*i:])) * word
				want, row := body[at:end], data[i*rowBytes:][:rowBytes]
				if n := c.encode(dst, row); !bytes.Equal(dst[:n], want) {
					t.Errorf("row %d: %d bytes differ from the golden %d", i, n, len(want))
				}
				if n, err := c.Decode(back, want); err != nil || n != len(want) || !bytes.Equal(back, row) {
					t.Errorf("golden row %d: decoded %d of %d bytes, %v", i, n, len(want), err)
				}
				at = end
			}
			if rows == 0 || !bytes.Equal(body[at:], data[rows*rowBytes:]) {
				t.Errorf("%d rows, then %d bytes that differ from the %d left over", rows, len(body)-at, len(data)-rows*rowBytes)
			}
		})
	}
}
