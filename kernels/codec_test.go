package kernels_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestAttachCodec_WholeLines: metadata are as the codec has them, and end with a line of shared memory, to which blocks copy them, for the rows
// lie behind them.
func TestAttachCodec_WholeLines(t *testing.T) {
	d := host.Open(1, 1)[0]
	padded := 0
	for _, name := range registry.Concrete() {
		for _, of := range []dtype.Type{dtype.Float32, dtype.BFloat16} {
			table := codedOf(name, of, 1024)
			trained, err := registry.Train(name, table.listedRows(200), 1024, table.dtype)
			if errors.Is(err, codec.ErrDType) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := kernels.AttachCodec(d, trained)
			if err != nil {
				t.Fatal(err)
			}
			got, want := c.Meta.Bytes(), c.Form.Metadata
			if len(got)%128 != 0 || len(got) < len(want) || !bytes.Equal(got[:len(want)], want) || !bytes.Equal(got[len(want):], make([]byte, len(got)-len(want))) {
				t.Errorf("%s, %v: %d bytes of %d", name, of, len(got), len(want))
			}
			if len(got) != len(want) {
				padded++
			}
			if c.Form.Scratch%128 != 0 {
				t.Errorf("%s, %v: scratch (%d bytes) between the rows of two warps", name, of, c.Form.Scratch)
			}
			d.Free(c.Meta)
		}
	}
	if padded == 0 {
		t.Error("no codec's metadata are padded")
	}
}
