//go:build cuda && linux

package gputest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/device/cuda/emulator"
)

// Two skips the test if there are no two GPUs. With one emulated GPU it runs the test in another process, which has two, and returns false.
func Two(t *testing.T) bool {
	t.Helper()
	const devices = "TENSORCACHE_EMULATOR_DEVICES"
	if !emulator.Present() || os.Getenv(devices) != "" {
		RequireGPUs(t, 2)
		return true
	}
	apart(t, devices+"=2")
	return false
}

// Emulated runs the test in another process whose emulated GPU has a setting, NAME=VALUE, and returns true in that process. It skips the test where GPUs are
// real ones.
func Emulated(t *testing.T, setting string) bool {
	t.Helper()
	Require(t)
	if !emulator.Present() {
		t.Skip("needs an emulated GPU")
	}
	name, value, _ := strings.Cut(setting, "=")
	if os.Getenv(name) == value {
		return true
	}
	apart(t, setting)
	return false
}

// apart runs a test in another process with an environment variable.
func apart(t *testing.T, variable string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	if testing.Short() {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Env = append(os.Environ(), variable)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("%v\n%s", err, out)
	}
}
