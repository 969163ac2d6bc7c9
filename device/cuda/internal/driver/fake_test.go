//go:build cuda

package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The driver is loaded once in a process, so each case runs in one of its own: the test binary, told by an environment
// variable to be that child.
const childVariable = "TENSORCACHE_DRIVER_TEST_CHILD"

var children = map[string]func(){}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		children[name]()
		return
	}
	code := m.Run()
	if fakes.dir != "" {
		os.RemoveAll(fakes.dir)
	}
	os.Exit(code)
}

// runChild runs a child and returns what it printed and what the fake driver recorded.
func runChild(t testing.TB, name string, env ...string) (printed string, calls []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), childVariable+"="+name, "FAKE_CUDA_LOG="+log), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", name, err, out)
	}
	if b, err := os.ReadFile(log); err == nil {
		calls = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	return string(out), calls
}

var fakes struct {
	sync.Once
	dir string
	err error
}

// fakeDriver returns the setting of the loader for the fake driver, or for the one without newer entries.
func fakeDriver(t testing.TB, old bool) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("no C compiler to build the fake driver with: %v", err)
	}
	fakes.Do(func() {
		if fakes.dir, fakes.err = os.MkdirTemp("", "tensorcache-fake-cuda"); fakes.err != nil {
			return
		}
		for name, flag := range map[string]string{"new.so": "-DNEW", "old.so": "-DOLD"} {
			out, err := exec.Command(cc, "-std=gnu11", "-shared", "-fPIC", "-Iinclude", flag, "-o",
				filepath.Join(fakes.dir, name), filepath.Join("testdata", "fake_cuda.c")).CombinedOutput()
			if err != nil {
				fakes.err = fmt.Errorf("building the fake driver: %v\n%s", err, out)
			}
		}
	})
	if fakes.err != nil {
		t.Fatal(fakes.err)
	}
	name := "new.so"
	if old {
		name = "old.so"
	}
	return "TENSORCACHE_LIBCUDA=" + filepath.Join(fakes.dir, name)
}

// check ends a child at an error.
func check(err error) {
	if err != nil {
		fmt.Println("unexpected:", err)
		os.Exit(1)
	}
}

// must does so for a call with a result.
func must[T any](v T, err error) T {
	check(err)
	return v
}
