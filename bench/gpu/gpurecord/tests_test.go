//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeTests is an environment variable with names of tests. If it is set, this test binary behaves as if it had these tests, which end
// as their names say.
const fakeTests = "GPURECORD_FAKE_TESTS"

func TestMain(m *testing.M) {
	if names := os.Getenv(fakeTests); names != "" {
		os.Exit(fake(strings.Fields(names), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake is the test binary: it prints what go test -v prints.
func fake(names, args []string) int {
	pattern := regexp.MustCompile(".")
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "-test.run="); ok {
			pattern = regexp.MustCompile(v)
		}
		if a == "-test.list" {
			fmt.Println("BenchmarkX\n" + strings.Join(names, "\n"))
			return 0
		}
	}
	for _, n := range names {
		if !pattern.MatchString(n) {
			continue
		}
		fmt.Println("=== RUN   " + n)
		switch {
		case strings.HasPrefix(n, "TestHang"):
			time.Sleep(time.Hour)
		case strings.HasPrefix(n, "TestSlow"):
			time.Sleep(time.Minute)
		case strings.HasPrefix(n, "TestCrash"):
			fmt.Println("fatal error: as asked")
			return 2
		case strings.HasPrefix(n, "TestFail"):
			fmt.Printf("--- FAIL: %s (0.00s)\nFAIL\n", n)
			return 1
		}
		fmt.Printf("--- PASS: %s (0.00s)\n", n)
	}
	fmt.Println("PASS")
	return 0
}

// newTester returns a tester of a binary p.test with the fake tests.
func newTester(t *testing.T, dir, names string) *tester {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "p.test")
	if err := os.Symlink(self, binary); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakeTests, names)
	return &tester{
		dir: dir, binaries: []string{binary}, pattern: ".", tools: []string{""}, workers: 3, each: 2 * time.Second, limit: time.Minute, out: t.Output(),
	}
}

func resultsOf(t *testing.T, dir string) string {
	t.Helper()
	tests, err := readLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for k, x := range tests {
		all = append(all, strings.TrimSpace(k.name+" "+x.Result))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestTester_EveryTestHasAResult: tests that hang or crash fail alone, and all others run. Nothing runs twice.
func TestTester_EveryTestHasAResult(t *testing.T) {
	dir := t.TempDir()
	r := newTester(t, dir, "TestHang TestA TestB TestCrash TestFail TestC")
	const failed = "failed: p.TestHang, p.TestCrash, p.TestFail"
	if err := r.run(t.Context()); err == nil || err.Error() != failed {
		t.Errorf("%v", err)
	}
	if got := resultsOf(t, dir); got != "TestA pass, TestB pass, TestC pass, TestCrash fail, TestFail fail, TestHang fail" {
		t.Error(got)
	}
	b, err := os.ReadFile(filepath.Join(dir, "p.TestHang.log"))
	if err != nil || !strings.Contains(string(b), "SIGQUIT") || !strings.Contains(string(b), "goroutine 1") {
		t.Errorf("the log of a test that hung has no goroutines: %v, %s", err, b)
	}
	before, err := os.ReadFile(filepath.Join(dir, ledgerFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context()); err == nil || err.Error() != failed {
		t.Errorf("again: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, ledgerFile)); err != nil || len(after) != len(before)+1 {
		t.Errorf("%d bytes were %d, %v", len(after), len(before), err)
	}
	tests, err := readLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	if x := tests[key{"p", "TestHang", ""}]; len(x.Failed) != 1 || x.Failed[0] != "did not end within 2s" {
		t.Errorf("%+v", x)
	}
	if x := tests[key{"p", "TestCrash", ""}]; len(x.Failed) != 1 || x.Failed[0] != "exit status 2" {
		t.Errorf("%+v", x)
	}
}

// TestTester_GoesOn: a test that the end of the time cuts off has no result. The next run runs it, and tests that another pattern left
// out, after a line that a kill cut short.
func TestTester_GoesOn(t *testing.T) {
	dir := t.TempDir()
	r := newTester(t, dir, "TestA TestSlow TestB")
	r.workers, r.each = 1, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the time is over when TestSlow runs
		for ctx.Err() == nil {
			if text, _ := os.ReadFile(filepath.Join(dir, "p.TestSlow.log")); strings.Contains(string(text), "TestSlow") {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if err := r.run(ctx); err == nil || err.Error() != "did not run: p.TestSlow, p.TestB" {
		t.Errorf("%v", err)
	}
	if got := resultsOf(t, dir); got != "TestA pass, TestB, TestSlow" {
		t.Error(got)
	}
	f, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"package":"p","name":"TestB","resu`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r = newTester(t, dir, "TestA TestSlow TestB")
	r.pattern = "B"
	if err := r.run(t.Context()); err != nil {
		t.Error(err)
	}
	if got := resultsOf(t, dir); got != "TestA pass, TestB pass, TestSlow" {
		t.Error(got)
	}
	r.binaries = []string{"/no/such.test"}
	if err := r.run(t.Context()); err == nil {
		t.Error("a binary that is not there ran")
	}
}

// TestTester_RowsWithRaces: racecheck, and no other tool, leaves out the subtests of damaged rows that have races.
func TestTester_RowsWithRaces(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	tool := "#!/bin/sh\necho \"$@\"\nwhile [ \"${1#--}\" != \"$1\" ]; do shift 2; done\n\"$@\"\n" +
		"echo '========= ERROR SUMMARY: 0 errors'\n"
	if err := os.WriteFile(filepath.Join(bin, "compute-sanitizer"), []byte(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newTester(t, dir, "TestA")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r.tools = []string{"memcheck", "racecheck"}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tool := range r.tools {
		log, err := os.ReadFile(filepath.Join(dir, "p.TestA."+tool+".log"))
		if err != nil || strings.Contains(string(log), "-test.skip="+rowsWithRaces) != (tool == "racecheck") {
			t.Errorf("%s: %v, %s", tool, err, log)
		}
	}
}

// TestTest_Judge: what a log and the way a process ended say of its test.
func TestTest_Judge(t *testing.T) {
	const pass = "=== RUN   TestA\n--- PASS: TestA (1.50s)\nPASS\n"
	const zero = "========= ERROR SUMMARY: 0 errors\n"
	const none = "========= Error: Target application terminated before first instrumented API call\n"
	for _, c := range []struct{ name, tool, log, fault, want string }{
		{"passed", "", pass, "", "pass []"},
		{"skipped", "", "--- SKIP: TestA (0.00s)\nPASS\n", "", "skip []"},
		{"subtests", "", "--- FAIL: TestA (1.50s)\n    --- PASS: TestA/x (0.01s)\n        --- FAIL: TestA/y/z (0.01s)\nFAIL\n", "exit status 1", "fail [y/z exit status 1]"},
		{"no result", "", "testing: warning: no tests to run\nPASS\n", "", "fail [the log has no result]"},
		{"killed at its end", "", pass, "signal: killed", "fail [signal: killed]"},
		{"another test", "", "--- PASS: TestB (1.50s)\nPASS\n", "", "fail [the log has no result]"},
		{"clean", "memcheck", pass + zero, "", "pass []"},
		{"clean of races", "racecheck", pass + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", "", "pass []"},
		{"not clean", "memcheck", pass + "========= ERROR SUMMARY: 3 errors\n", "", "fail [memcheck is not clean: ERROR SUMMARY: 3 errors]"},
		{"cut off", "memcheck", pass, "", "fail [memcheck is not clean: ]"},
		{"no call of the driver", "memcheck", pass + none, "exit status 255", "skip []"},
		{"skipped without a call of the driver", "memcheck", "--- SKIP: TestA (0.00s)\nPASS\n" + none, "exit status 255", "skip []"},
		{"it failed before", "memcheck", "--- FAIL: TestA (0.00s)\nFAIL\n" + none, "exit status 255", "fail [exit status 255]"},
	} {
		x := Test{Package: "p", Name: "TestA", Tool: c.tool}.judge(c.log, c.fault)
		if got := fmt.Sprintf("%s %v", x.Result, x.Failed); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	x := Test{Name: "TestA"}.judge("=== RUN   TestA\n    a.go:1: gpus: 2\n    a.go:1: gpus: 4\n--- PASS: TestA (0.25s)\n    --- PASS: TestA/2 (0.1s)\nPASS\n", "")
	if x.Subtests != 1 || !slices.Equal(x.GPUs, []int{2, 4}) || x.Seconds != 0.25 {
		t.Errorf("%+v", x)
	}
}
