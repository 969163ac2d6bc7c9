//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/lab/record"
)

// standIn is set where this program stands for test binaries of a bundle. It says what they do.
var standIn = os.Getenv("LAB_STAND_IN")

func TestStandIn_Passes(t *testing.T) {
	if standIn == "" {
		t.Skip("is run by TestRunScript")
	}
	t.Run("sub", func(t *testing.T) { t.Log("gpus: 2") })
}

// TestStandIn_Hangs starts a process that outlives it, and then hangs or passes.
func TestStandIn_Hangs(t *testing.T) {
	if standIn == "" {
		t.Skip("is run by TestRunScript")
	}
	if standIn == "hangs" {
		if err := exec.Command("sleep", "7654").Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
}

// bundle makes a folder with run.sh, test2json, this program as the test binaries of kernels and cache, and programs that stand for the others.
func bundle(t *testing.T) (dir string, run func(environment string, args ...string) (output string, err error)) {
	t.Helper()
	if standIn != "" {
		t.Skip("runs the stand-ins")
	}
	dir = t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "cmd/test2json").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := os.ReadFile("run.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"run.sh":       string(script),
		"sources.json": `{"ptx":"p","go":"g"}`,
		"lab/lab": `#!/bin/sh
[ "$1" = machine ] && { echo '{"device":"GPU X","driver":"1","gpus":2}'; exit; }
echo "lab $3" >>calls
echo figures
[ "$3" = sampling,refresh ] && [ -e broken ] && exec sleep 77
[ "$3" != gather-misses-large ] || [ ! -e broken ]
`,
		"bin/compute-sanitizer": `#!/bin/sh
echo "$@" >>calls
tool=$2
while [ "${1#./}" = "$1" ]; do shift; done
"$@"
code=$?
[ $tool = racecheck ] && echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" || echo "========= ERROR SUMMARY: 0 errors"
exit $code
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kernels.test", "cache.test"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(environment string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(dir, "run.sh"), args...)
		cmd.Env = append(os.Environ(), "RESULTS=results", "ARCHIVE=kept.tar.gz", "TESTS=StandIn", "PATH="+dir+"/bin:/usr/bin:/bin")
		cmd.Env = append(cmd.Env, strings.Fields(environment)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// calls returns what stand-ins noted, and forgets it.
func calls(t *testing.T, dir string) string {
	t.Helper()
	b, _ := os.ReadFile(filepath.Join(dir, "calls"))
	_ = os.Remove(filepath.Join(dir, "calls"))
	return string(b)
}

// TestRunScript_Bench: a step that fails or hangs stops no other, the exit status says so, and the same command runs only what has not ended well.
func TestRunScript_Bench(t *testing.T) {
	t.Parallel()
	dir, run := bundle(t)
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run("LIMIT=4", "bench", "hot", "large", "online")
	if did := calls(t, dir); err == nil || strings.Count(did, "lab") != 2 ||
		!strings.Contains(out, "bench-hot ended") || !strings.Contains(out, "bench-online FAILED") || !strings.Contains(out, "bench-large: no time was left") {
		t.Errorf("%v\n%s\n%s", err, did, out)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	out, err = run("LIMIT=60", "bench", "hot", "large", "online")
	if did := calls(t, dir); err != nil || did != "lab sampling,refresh\nlab gather-misses-large\n" {
		t.Errorf("%v\n%s\n%s", err, did, out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "results/bench-hot.txt")); err != nil || string(b) != "figures\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept.tar.gz")); err != nil {
		t.Error(err)
	}
	if out, err := run("LIMIT=60", "nothing"); err == nil || !strings.Contains(out, "./run.sh sanitize") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run("LIMIT=60", "bench", "hot"); err == nil || !strings.Contains(out, "is of other code or another machine") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRunScript_Tests: each test runs in a process of its own. One that hangs is killed with all that it has started, and has failed; one that the time of all cuts
// off has no result, and runs the next time. A record can be made of the results, also of those under compute-sanitizer.
func TestRunScript_Tests(t *testing.T) {
	t.Parallel()
	dir, run := bundle(t)
	in := func(name string) string { return filepath.Join(dir, "results", name) }
	out, err := run("LIMIT=60 EACH=10 LAB_STAND_IN=hangs", "test", "kernels")
	if err == nil || !strings.Contains(out, "FAILED: results/kernels.TestStandIn_Hangs.json") || !strings.Contains(out, "1 failed and 0 did not run") || strings.Contains(out, "cache") {
		t.Errorf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(in("kernels.TestStandIn_Hangs.json")); err != nil || !strings.Contains(string(text), "time.Sleep") {
		t.Errorf("goroutines of a test that hangs: %s, %v", text, err)
	}
	if left, err := exec.Command("pgrep", "-f", "^sleep 7654$").Output(); err == nil {
		t.Errorf("a test that was killed left processes: %s", left)
	}
	for _, name := range []string{"kernels.TestStandIn_Hangs.json", "kernels.TestStandIn_Hangs.json.failed"} {
		if err := os.Remove(in(name)); err != nil {
			t.Fatal(err)
		}
	}
	out, err = run("LIMIT=3 LAB_STAND_IN=hangs", "test", "kernels")
	if err == nil || !strings.Contains(out, "0 failed and 1 did not run") {
		t.Errorf("cut off by the time of all: %v\n%s", err, out)
	}
	if out, err := run("LIMIT=60 LAB_STAND_IN=passes", "test", "kernels"); err != nil || !strings.Contains(out, "0 failed and 0 did not run") {
		t.Errorf("%v\n%s", err, out)
	}
	calls(t, dir)
	for tools, want := range map[string][]string{"": {"memcheck", "racecheck"}, "synccheck initcheck": {"initcheck", "synccheck"}} {
		out, err := run("LIMIT=60 LAB_STAND_IN=passes", append([]string{"sanitize"}, strings.Fields(tools)...)...)
		did := calls(t, dir)
		for _, tool := range want {
			if err != nil || strings.Count(did, "--tool "+tool+" --error-exitcode 1 ") != 2 || !strings.Contains(did, "./kernels.test -test.v=test2json") || !strings.Contains(did, "-test.short") {
				t.Errorf("sanitize %s: %v\n%s\n%s", tools, err, did, out)
			}
		}
	}
	if out, err := run("LIMIT=60", "sanitize", "lint"); err == nil || !strings.Contains(out, "tools (lint) must be memcheck, racecheck, initcheck, synccheck") {
		t.Errorf("%v\n%s", err, out)
	}
	r, err := record.Collect([]string{filepath.Join(dir, "results")})
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, x := range r.Tests {
		if strings.HasPrefix(x.Name, "TestStandIn_") && x.Package == "kernels" && x.Result == "pass" {
			passed++
		}
		if x.Name == "TestStandIn_Passes" && (x.Subtests != 1 || !slices.Equal(x.GPUs, []int{2})) || x.Result == "fail" {
			t.Errorf("%+v", x)
		}
	}
	if passed != 2 || r.Device != "GPU X" || r.GPUs != 2 || len(r.Sanitizer) != 4 || !slices.Equal(r.Counts, []int{2}) {
		t.Errorf("%d passed: %+v", passed, r)
	}
	for _, s := range r.Sanitizer {
		if !s.Clean || s.Tests != 2 || s.Package != "kernels" {
			t.Errorf("%+v", s)
		}
	}
	if err := os.Remove(filepath.Join(dir, "bin/compute-sanitizer")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("LIMIT=60", "sanitize"); err == nil || !strings.Contains(out, "there is no compute-sanitizer") {
		t.Errorf("%v\n%s", err, out)
	}
}
