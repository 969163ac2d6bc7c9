//go:build cuda && linux

package kernels

import (
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

// TestMachineCode: a device takes code of its own major version, of the nearest minor version that is not newer, and none that is of other PTX. No GPU has
// these versions, as what is unpacked stays for the other tests.
func TestMachineCode(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := func(of, code string, ptx []byte) *fstest.MapFile {
		archive, err := bundle.Machine(ptx, map[string][]byte{of: []byte(code)})
		if err != nil {
			t.Fatal(err)
		}
		return &fstest.MapFile{Data: enc.EncodeAll(archive, nil)}
	}
	files := fstest.MapFS{
		"cubin/sm_200/common.tar.zst": file("lookup", "for 20.0", ptxFile("common")),
		"cubin/sm_206/common.tar.zst": file("lookup", "for 20.6", ptxFile("common")),
		"cubin/sm_210/common.tar.zst": file("lookup", "old", []byte("PTX of last week")),
		"cubin/sm_220/common.tar.zst": {Data: []byte("damaged")},
		"cubin/sm_240/common.tar.zst": file("order", "another module", ptxFile("common")),
	}
	for _, c := range []struct {
		major, minor int
		want         string
	}{{20, 0, "for 20.0"}, {20, 6, "for 20.6"}, {20, 7, "for 20.6"}, {20, 9, "for 20.6"}, {21, 0, ""}, {22, 0, ""}, {22, 3, ""}, {24, 0, ""}, {19, 5, ""}, {23, 0, ""}} {
		if got := string(machineCode(files, "lookup", c.major, c.minor)); got != c.want {
			t.Errorf("%d.%d: got %q, want %q", c.major, c.minor, got, c.want)
		}
	}
}
