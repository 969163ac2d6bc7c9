package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseLog_TestsAndSanitizer(t *testing.T) {
	l := parseLog("kernels", "memcheck", []byte(`========= COMPUTE-SANITIZER
=== RUN   TestA
=== RUN   TestA/x
--- FAIL: TestA (1.50s)
    --- PASS: TestA/x (0.01s)
    --- FAIL: TestA/y/z (0.01s)
--- SKIP: TestB (0.00s)
=== RUN   TestC
=== RUN   TestC/2
    gpus_test.go:31: gpus: 2
=== RUN   TestC/4
    gpus_test.go:31: gpus: 4
--- PASS: TestC (0.25s)
    --- PASS: TestC/2 (0.1s)
FAIL
========= ERROR SUMMARY: 0 errors
`))
	if len(l.tests) != 3 || l.summary != "ERROR SUMMARY: 0 errors" || !l.clean() || l.unended() {
		t.Fatalf("%+v", l)
	}
	a := l.tests[0]
	if a.Name != "TestA" || a.Result != "fail" || a.Seconds != 1.5 || a.Subtests != 2 || len(a.Failed) != 1 || a.Failed[0] != "y/z" {
		t.Errorf("%+v", a)
	}
	if c := l.tests[2].counts; len(l.tests[0].counts) != 0 || len(c) != 2 || c[0] != 2 || c[1] != 4 {
		t.Errorf("counts of GPUs: %+v", l.tests)
	}
	if l.tests[1].Result != "skip" || l.tests[2].Result != "pass" {
		t.Errorf("%+v", l.tests)
	}
	if err := (Record{Tests: l.tests}).fault(); err == nil || !strings.Contains(err.Error(), "TestA failed") {
		t.Errorf("fault: %v", err)
	}
}

// TestParseLog_ToolSawNothing: compute-sanitizer fails where no call of the driver came to it, which is no fault of tests that need none;
// where the process had not ended, it is.
func TestParseLog_ToolSawNothing(t *testing.T) {
	const text = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n%s\n========= Error: Target application terminated before first instrumented API call\n"
	l := parseLog("kernels", "memcheck", fmt.Appendf(nil, text, "PASS"))
	if len(l.tests) != 1 || l.tests[0].Result != "skip" || !l.clean() || l.void() || l.unended() {
		t.Errorf("%+v", l)
	}
	beside := parseLog("kernels", "memcheck", []byte("=== RUN   TestB\n--- PASS: TestB (0.00s)\nPASS\n========= ERROR SUMMARY: 0 errors\n"))
	if s := sanitized("kernels", "memcheck", []testLog{l, beside}); !s.Clean || s.Tests != 1 || s.Summary != "ERROR SUMMARY: 0 errors" {
		t.Errorf("%+v", s)
	}
	if s := sanitized("kernels", "memcheck", []testLog{l}); s.Clean {
		t.Errorf("a tool that saw nothing is clean: %+v", s)
	}
	if l := parseLog("kernels", "memcheck", fmt.Appendf(nil, text, "")); len(l.tests) != 0 || l.untouched || !l.void() {
		t.Errorf("cut off: %+v", l)
	}
	if l := parseLog("kernels", "memcheck", fmt.Appendf(nil, text, "FAIL")); len(l.tests) != 2 || l.tests[1].Name != theBinary {
		t.Errorf("failed: %+v", l)
	}
}

// TestParseLog_Ends: who is to blame for how a process ended.
func TestParseLog_Ends(t *testing.T) {
	const a = "=== RUN   TestA\n--- PASS: TestA (1.50s)\n"
	limit := "\n" + noted + errLimit.Error() + "\n"
	const hung = "\n" + noted + "no output for 1m0s\n"
	for _, c := range []struct{ name, text, want string }{
		{"passed", a + "PASS\n", "TestA pass"},
		{"its watcher was killed with it", a + "=== RUN   TestB\n", "TestA pass"},
		{"no time was left", a + "=== RUN   TestB\nSIGQUIT: quit\n" + limit, "TestA pass"},
		{"one hung", a + "=== RUN   TestB\n=== RUN   TestB/x\nSIGQUIT: quit\n" + hung, "TestA pass, TestB fail [did not end: no output for 1m0s]"},
		{"one of two hung", a + "=== RUN   TestB\n=== RUN   TestC\n" + hung,
			"TestA pass, TestB fail suspect [did not end: no output for 1m0s], TestC fail suspect [did not end: no output for 1m0s]"},
		{"one paused", a + "=== RUN   TestB\n=== PAUSE TestB\n=== RUN   TestC\n" + hung, "TestA pass, TestC fail [did not end: no output for 1m0s]"},
		{"a panic", a + "--- FAIL: TestB (0.00s)\npanic: no\n", "TestA pass, TestB fail"},
		{"a fatal error", a + "=== RUN   TestB\nfatal error: no\n", "TestA pass, TestB fail [did not end: fatal error: no]"},
		{"it did not start", "panic: no\n", "(the test binary) fail [panic: no]"},
		{"it was killed at its end", a + "PASS\n\n" + noted + "ended by signal: killed\n", "TestA pass, (the test binary) fail [ended by signal: killed]"},
		{"nobody failed", a + "FAIL\n", "TestA pass, (the test binary) fail [it failed, and no test did]"},
		{"a broken context", "--- FAIL: TestB (0.00s)\n--- FAIL: TestC (0.00s)\nFAIL\n", "TestB fail, TestC fail suspect"},
	} {
		var have []string
		for _, x := range parseLog("cache", "", []byte(c.text)).tests {
			s := x.Name + " " + x.Result
			if x.suspect {
				s += " suspect"
			}
			if len(x.Failed) > 0 {
				s += fmt.Sprint(" ", x.Failed)
			}
			have = append(have, s)
		}
		if got := strings.Join(have, ", "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestMerge_Verdicts: a failure counts, unless it may be another's and the test was run again.
func TestMerge_Verdicts(t *testing.T) {
	pass, skip, fail, suspect := Test{Result: "pass", Seconds: 1, counts: []int{2}}, Test{Result: "skip"}, Test{Result: "fail"}, Test{Result: "fail", suspect: true}
	for _, c := range []struct {
		tests []Test
		want  string
	}{
		{[]Test{pass, skip}, "pass"}, {[]Test{pass, fail}, "fail"}, {[]Test{suspect, pass}, "pass"}, {[]Test{suspect, skip}, "skip"},
		{[]Test{suspect, fail}, "fail"}, {[]Test{suspect, suspect}, "fail"}, {[]Test{pass, {Result: "pass", Seconds: 3, counts: []int{4}}}, "pass"},
	} {
		var logs, reversed []testLog
		for _, x := range c.tests {
			logs = append(logs, testLog{tests: []Test{x}})
			reversed = append([]testLog{{tests: []Test{x}}}, reversed...)
		}
		for _, logs := range [][]testLog{logs, reversed} {
			got := merge(logs)
			if len(got) != 1 || got[0].Result != c.want {
				t.Errorf("%v: %+v", c.tests, got)
			}
			if len(c.tests) == 2 && c.tests[1].Seconds == 3 && (got[0].Seconds != 3 || len(got[0].counts) != 2) {
				t.Errorf("%+v", got)
			}
		}
	}
}
