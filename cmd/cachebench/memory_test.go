//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestMemory_Peak bounds the memory of commands by the table's size: at most 1.3 times, and, where there is a cache, its host tier besides.
func TestMemory_Peak(t *testing.T) {
	const rows, rowBytes, least = 200_000, 512, 1000
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, rows*rowBytes)
	for i := 0; i < len(data); i += 4 {
		binary.LittleEndian.PutUint32(data[i:], 0x3f800000|r.Uint32()&0xffff)
	}
	array := func(rows int) []byte { return npyOf(t, dtype.Float32, data[:rows*rowBytes], rows, rowBytes/4) }
	small, plain := write(t, "small.npy", array(least)), write(t, "plain.npy", array(rows))
	deflated := write(t, "deflated.npz", npzOf(t, member{"features", array(rows)}))
	ids := write(t, "ids", idLines(r.Perm(least)))
	peak := func(args ...string) float64 {
		t.Helper()
		cmd := command(t, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v, %s", args, err, &stderr)
		}
		return float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) * 1024
	}
	for name, c := range map[string]struct {
		args  []string
		times float64
	}{
		"run":           {[]string{"run", "--codec", "ibp4", "--ids", ids}, 2.3},
		"run packed":    {[]string{"run", "--codec", "ibp4", "--ids", ids, "--host-tier", "packed"}, 2.3},
		"run --verify":  {[]string{"run", "--codec", "ibp4", "--ids", ids, "--verify"}, 2.3},
		"plan":          {[]string{"plan", "--codec", "none,ibp4", "--ids", ids, "--policy", "static-freq"}, 1.3},
		"compress ibp4": {[]string{"compress", "--codec", "ibp4"}, 1.3},
	} {
		begin := peak(slices.Concat(c.args, []string{"--features", small})...)
		for _, file := range []string{plain, deflated} {
			if more := peak(slices.Concat(c.args, []string{"--features", file})...) - begin; more > c.times*float64(len(data)) {
				t.Errorf("%s %s: %.2f times the table, want at most %.1f", name, file, more/float64(len(data)), c.times)
			} else {
				t.Logf("%s %s: %.2f times the table", name, file, more/float64(len(data)))
			}
		}
	}
}
