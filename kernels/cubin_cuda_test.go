//go:build cuda && linux

package kernels

import (
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

// TestMachineCode: a device takes code of its own major version, of the nearest minor version that is not newer, and none that is of other PTX.
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
		"cubin/sm_80/common.tar.zst":  file("lookup", "for 8.0", ptxFile("common")),
		"cubin/sm_86/common.tar.zst":  file("lookup", "for 8.6", ptxFile("common")),
		"cubin/sm_90/common.tar.zst":  file("lookup", "old", []byte("PTX of last week")),
		"cubin/sm_100/common.tar.zst": {Data: []byte("damaged")},
		"cubin/sm_120/common.tar.zst": file("order", "another module", ptxFile("common")),
	}
	for _, c := range []struct {
		major, minor int
		want         string
	}{{8, 0, "for 8.0"}, {8, 6, "for 8.6"}, {8, 7, "for 8.6"}, {8, 9, "for 8.6"}, {9, 0, ""}, {10, 0, ""}, {10, 3, ""}, {12, 0, ""}, {7, 5, ""}, {11, 0, ""}} {
		if got := string(machineCode(files, "lookup", c.major, c.minor)); got != c.want {
			t.Errorf("%d.%d: got %q, want %q", c.major, c.minor, got, c.want)
		}
	}
}
