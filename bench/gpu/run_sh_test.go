//go:build linux

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunScript runs run.sh with commands that stand for those of a bundle: a step that fails or hangs stops no other, the exit status
// says so, and the same command runs only what has not ended well.
func TestRunScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile("run.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"run.sh":       string(script),
		"kernels.test": "", "cache.test": "",
		"gpurecord": `#!/bin/sh
[ "$1" = begin ] && { mkdir -p results; exit; }
echo "$@" >>calls
[ ! -e broken ]
`,
		"cachebench": `#!/bin/sh
echo "cachebench $3" >>calls
echo figures
[ "$3" = sampling,refresh ] && [ -e broken ] && exec sleep 77
[ "$3" != gather-misses-large ] || [ ! -e broken ]
`,
		"broken": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (calls, output string, err error) {
		t.Helper()
		_ = os.Remove(filepath.Join(dir, "calls"))
		cmd := exec.Command(filepath.Join(dir, "run.sh"), args...)
		cmd.Env = append(os.Environ(), "LIMIT=4", "RESULTS=results", "ARCHIVE=kept.tar.gz", "TESTS=ManyRows", "PATH="+dir+"/bin:/usr/bin:/bin")
		out, err := cmd.CombinedOutput()
		b, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(b), string(out), err
	}
	if calls, out, err := run("bench", "hot", "large", "online"); err == nil || strings.Count(calls, "cachebench") != 2 ||
		!strings.Contains(out, "bench-hot ended") || !strings.Contains(out, "bench-online FAILED") || !strings.Contains(out, "bench-large: no time was left") {
		t.Errorf("%v\n%s\n%s", err, calls, out)
	}
	if calls, out, err := run("test", "kernels"); err == nil || strings.Count(calls, "./kernels.test") != 3 || strings.Contains(calls, "cache.test") || !strings.Contains(out, "tests FAILED") {
		t.Errorf("%v\n%s\n%s", err, calls, out)
	}
	if err := os.Remove(filepath.Join(dir, "broken")); err != nil {
		t.Fatal(err)
	}
	if calls, out, err := run("bench", "hot", "large", "online"); err != nil || calls != "cachebench sampling,refresh\ncachebench gather-misses-large\n" {
		t.Errorf("%v\n%s\n%s", err, calls, out)
	}
	if _, out, err := run("test"); err != nil || !strings.Contains(out, "tests ended") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, out, err := run("sanitize"); err == nil || !strings.Contains(out, "there is no compute-sanitizer") {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/compute-sanitizer"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for tools, want := range map[string]string{"": "memcheck,racecheck", "synccheck initcheck": "initcheck,synccheck"} {
		calls, out, err := run(append([]string{"sanitize"}, strings.Fields(tools)...)...)
		if err != nil || !strings.Contains(calls, "-tools "+want+" -run ManyRows ./kernels.test") {
			t.Errorf("sanitize %s: %v\n%s\n%s", tools, err, calls, out)
		}
	}
	if _, out, err := run("sanitize", "lint"); err == nil || !strings.Contains(out, "tools (lint) must be memcheck, racecheck, initcheck, synccheck") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, out, err := run("nothing"); err == nil || !strings.Contains(out, "./run.sh sanitize") {
		t.Errorf("%v\n%s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "results/bench-hot.txt")); err != nil || string(b) != "figures\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept.tar.gz")); err != nil {
		t.Error(err)
	}
}
