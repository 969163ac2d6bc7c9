//go:build cuda && linux

package kernels

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/tensorcache/tensorcache/internal/bundle"
)

// machine has the machine code that this build was given, if any: cubin/README.md.
//
//go:embed cubin
var machine embed.FS

var images unpacked[map[string][]byte]

// machineCode returns a module's machine code for devices of a compute capability, or nil if files has none for them. Code for 8.0 runs on 8.6 and 8.9,
// too, but not on 9.0.
func machineCode(files fs.FS, module string, major, minor int) []byte {
	of := bundle.Of(module)
	for ; minor >= 0; minor-- {
		file := fmt.Sprintf("cubin/sm_%d%d/%s%s", major, minor, of, bundle.MachineExt)
		packed, err := fs.ReadFile(files, file)
		if err != nil {
			continue
		}
		code, err := images.of(file, func() (map[string][]byte, error) { return bundle.UnpackMachine(packed, ptxFile(of)) })
		if err != nil { // compiled from other PTX, or damaged
			return nil
		}
		return (*code)[module]
	}
	return nil
}

func hasMachineCode(capability string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(capability, "%d.%d", &major, &minor)
	return n == 2 && machineCode(machine, "lookup", major, minor) != nil
}
