//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeTests, in the environment, has this test binary behave like one of a few tests that end as their names say.
const fakeTests = "GPURECORD_FAKE_TESTS"

func TestMain(m *testing.M) {
	if names := os.Getenv(fakeTests); names != "" {
		os.Exit(fake(strings.Fields(names), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake is the test binary: as go test -v prints.
func fake(names, args []string) int {
	pattern := regexp.MustCompile(".")
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "-test.run="); ok {
			pattern = regexp.MustCompile(v)
		}
		if a == "-test.list" {
			list := regexp.MustCompile(args[i+1])
			fmt.Println("BenchmarkX")
			for _, n := range names {
				if list.MatchString(n) {
					fmt.Println(n)
				}
			}
			return 0
		}
	}
	status := 0
	broken := false
	for _, n := range names {
		if !pattern.MatchString(n) {
			continue
		}
		fmt.Println("=== RUN   " + n)
		result := "PASS"
		switch {
		case strings.HasPrefix(n, "TestHang"):
			select {}
		case strings.HasPrefix(n, "TestCrash"):
			fmt.Println("fatal error: as asked")
			return 2
		case strings.HasPrefix(n, "TestSlow"):
			time.Sleep(time.Minute)
		case strings.HasPrefix(n, "TestBreak"): // as one that spoils the GPU's context
			broken = true
			fallthrough
		case strings.HasPrefix(n, "TestFail") || broken:
			result, status = "FAIL", 1
		}
		fmt.Printf("--- %s: %s (0.00s)\n", result, n)
	}
	fmt.Println([]string{"PASS", "FAIL"}[status])
	return status
}

func newSuite(t *testing.T, dir string, workers int, names string) *suite {
	t.Helper()
	t.Setenv(fakeTests, names)
	return &suite{dir: dir, pkg: "p", command: []string{os.Args[0]}, pattern: ".", workers: workers, stall: 10 * time.Second}
}

func resultsOf(t *testing.T, s *suite) string {
	t.Helper()
	tests, err := s.settled()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for name, x := range tests {
		all = append(all, name+" "+x.Result)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestSuite_EveryTestHasAVerdict: tests that hang, crash or spoil others fail alone, and no other test is lost or blamed.
func TestSuite_EveryTestHasAVerdict(t *testing.T) {
	for workers, c := range map[int]struct{ names, passed, failed string }{
		1: {"TestA TestBreak TestB TestC TestD TestE TestCrash TestF TestFail TestG", "TestA TestB TestC TestD TestE TestF TestG", "TestBreak TestCrash TestFail"},
		3: {"TestHang TestBreak TestA TestB TestC TestD TestE TestCrash TestF", "TestA TestB TestC TestD TestE TestF", "TestHang TestBreak TestCrash"},
	} {
		dir := t.TempDir()
		s := newSuite(t, dir, workers, c.names)
		summary, err := s.run(t.Context())
		passed, failed := strings.Fields(c.passed), strings.Fields(c.failed)
		if err == nil || err.Error() != "failed: "+strings.Join(failed, ", ") || summary != fmt.Sprintf("%d passed, 0 skipped, %d failed", len(passed), len(failed)) {
			t.Errorf("%d workers: %s, %v", workers, summary, err)
		}
		var want []string
		for _, n := range passed {
			want = append(want, n+" pass")
		}
		for _, n := range failed {
			want = append(want, n+" fail")
		}
		slices.Sort(want)
		if got := resultsOf(t, s); got != strings.Join(want, ", ") {
			t.Errorf("%d workers: %s", workers, got)
		}
		logs := logsOf(t, dir)
		dumped := false
		for _, text := range logs {
			dumped = dumped || strings.Contains(text, "SIGQUIT") && strings.Contains(text, "goroutine 1") && strings.Contains(text, noted+"no output for 10s")
		}
		if dumped != strings.Contains(c.names, "TestHang") {
			t.Errorf("the goroutines of a test that hung are in a log: %v", dumped)
		}
		// Nothing is run twice.
		if _, err := s.run(t.Context()); err == nil {
			t.Error("failures are forgotten")
		}
		if again := logsOf(t, dir); len(again) != len(logs) {
			t.Errorf("%d logs were %d", len(again), len(logs))
		}
	}
}

// logsOf returns the texts of the logs.
func logsOf(t *testing.T, dir string) (texts []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "p.*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// TestSuite_GoesOn: what an end of the time leaves out is said, blames nobody, and is run by the next call.
func TestSuite_GoesOn(t *testing.T) {
	dir := t.TempDir()
	s := newSuite(t, dir, 1, "TestA TestSlow TestB")
	s.stall = 0
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the time is over once TestSlow runs
		for ctx.Err() == nil {
			paths, _ := filepath.Glob(filepath.Join(dir, "p.*.log"))
			for _, path := range paths {
				if text, _ := os.ReadFile(path); strings.Contains(string(text), "TestSlow") {
					cancel()
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	defer cancel()
	if _, err := s.run(ctx); err == nil || err.Error() != "not run: TestSlow, TestB" {
		t.Errorf("%v", err)
	}
	s = newSuite(t, dir, 1, "TestA TestSlow TestB")
	s.pattern = "B"
	if summary, err := s.run(t.Context()); err != nil || summary != "1 passed, 0 skipped, 0 failed" {
		t.Errorf("%s, %v", summary, err)
	}
	if got := resultsOf(t, s); got != "TestA pass, TestB pass" {
		t.Error(got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "p.list")); err != nil || string(b) != "TestA\nTestSlow\nTestB\n" {
		t.Errorf("the list is %q, %v", b, err)
	}
}

// TestStep_Limits: a command that takes too long, or is silent too long, is killed with what it started; a step for which no time is
// left does not begin; the table says so.
func TestStep_Limits(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now()
	run := func(o stepOptions) error {
		o.dir = dir
		return runStep(o)
	}
	if err := run(stepOptions{name: "good", limit: time.Minute, command: []string{"sh", "-c", "echo fine"}}); err != nil {
		t.Error(err)
	}
	if err := run(stepOptions{name: "silent", limit: time.Minute, stall: time.Second, command: []string{"sh", "-c", "sleep 77 & sleep 77"}}); err == nil || !strings.Contains(err.Error(), "no output for 1s") {
		t.Errorf("silent: %v", err)
	}
	if err := run(stepOptions{name: "long", limit: least + time.Second/10, command: []string{"sleep", "77"}}); !errors.Is(err, errLimit) {
		t.Errorf("long: %v", err)
	}
	if err := run(stepOptions{name: "late", limit: time.Minute, until: time.Now().Unix() + 1, command: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "no time was left") {
		t.Errorf("late: %v", err)
	}
	if err := run(stepOptions{name: "absent", limit: time.Minute, command: []string{"/no/such/program"}}); err == nil {
		t.Error("a program that is not there ran")
	}
	if took := time.Since(begin); took > 40*time.Second {
		t.Errorf("took %v", took)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "good.txt")); err != nil || string(b) != "fine\n" {
		t.Errorf("output %q, %v", b, err)
	}
	if err := addStep(dir, Step{Name: "killed", Begin: 1, Result: stepRunning}); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	err := printSteps(&table, dir)
	if err == nil || strings.Contains(err.Error(), "good") {
		t.Errorf("%v", err)
	}
	for _, s := range []string{"silent: failed", "long: failed", "late: not begun", "absent: failed", "killed: cut off"} {
		if err != nil && !strings.Contains(err.Error(), "step "+s) {
			t.Errorf("%v\nwant %s", err, s)
		}
	}
	if lines := strings.Count(table.String(), "\n"); lines != 7 {
		t.Errorf("%d lines:\n%s", lines, table.String())
	}
}
