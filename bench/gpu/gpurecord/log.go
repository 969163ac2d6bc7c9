package main

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Test is a test function; its subtests are counted.
type Test struct {
	Package  string   `json:"package"`
	Name     string   `json:"name"`
	Result   string   `json:"result"` // pass, fail or skip
	Seconds  float64  `json:"seconds"`
	Subtests int      `json:"subtests,omitempty"`
	Failed   []string `json:"failed,omitempty"` // subtests, or why the test did not end
	counts   []int    // of GPUs that it covered
	// suspect says that others may be to blame: one failed before in the same process, or several were running when it ended.
	suspect bool
}

// theBinary stands for a test that failed where no test did.
const theBinary = "(the test binary)"

// testLog is what one process printed: go test -v, perhaps under compute-sanitizer.
type testLog struct {
	pkg, tool string
	tests     []Test // that ended, and that are to blame that the process did not
	// finished says that the process came to its end.
	finished bool
	// summary is the tool's, "" where it did not come to it. complaints are others of its lines that tell of faults.
	summary    string
	complaints int
	// untouched says that the tool had nothing to look at: the process ended without a call of the driver. Its exit status is the tool's then.
	untouched bool
}

func (l *testLog) unended() bool { return !l.finished }

// void says that the tests ran under a tool that was cut off before it could say what it had found.
func (l *testLog) void() bool { return l.tool != "" && l.summary == "" && !l.untouched }

func (l *testLog) clean() bool {
	return l.complaints == 0 && (l.void() || l.untouched || clean.MatchString(l.summary))
}

var (
	started  = regexp.MustCompile(`^=== (RUN|CONT|PAUSE) +([^/\s]+)$`)
	ended    = regexp.MustCompile(`^(\s*)--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)`)
	summary  = regexp.MustCompile(`^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)`)
	clean    = regexp.MustCompile(`SUMMARY: 0 (errors|hazards displayed \(0 errors, 0 warnings\))`)
	complain = regexp.MustCompile(`^=+ (Invalid|Misaligned|Error: |Race reported|Barrier error)`)
	unused   = regexp.MustCompile(`^=+ Error: Target application terminated before first instrumented API call`)
	covers   = regexp.MustCompile(`: gpus: ([1-8])$`)
	crashed  = regexp.MustCompile(`^(panic:|fatal error:|SIG|signal )`)
)

// parseLog reads a log. One that just ends, having been killed with whoever watched it, blames nobody: the tests that it leaves
// open were not run.
func parseLog(pkg, tool string, text []byte) testLog {
	l := testLog{pkg: pkg, tool: tool}
	subtests, failed := map[string]int{}, map[string][]string{}
	var running []string
	var counts []int // logged since the last test ended, which go test -v prints before that
	fault, failures, failing := "", 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m := summary.FindStringSubmatch(line); m != nil {
			l.summary = m[1]
		}
		switch {
		case unused.MatchString(line):
			l.untouched = true
		case complain.MatchString(line):
			l.complaints++
		}
		if why, ok := strings.CutPrefix(line, noted); ok {
			fault = why
		} else if fault == "" && crashed.MatchString(line) {
			fault = line
		}
		l.finished = l.finished || line == "PASS" || line == "FAIL"
		failing = failing || line == "FAIL"
		if m := covers.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			counts = append(counts, n)
		}
		if m := started.FindStringSubmatch(line); m != nil {
			running = slices.DeleteFunc(running, func(t string) bool { return t == m[2] })
			if m[1] != "PAUSE" {
				running = append(running, m[2])
			}
		}
		m := ended.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		top, sub, nested := strings.Cut(m[3], "/")
		if nested {
			subtests[top]++
			if m[2] == "FAIL" {
				failed[top] = append(failed[top], sub)
			}
			continue
		}
		running = slices.DeleteFunc(running, func(t string) bool { return t == top })
		seconds, _ := strconv.ParseFloat(m[4], 64)
		t := Test{Package: pkg, Name: top, Result: strings.ToLower(m[2]), Seconds: seconds, counts: counts}
		if t.Result == "fail" {
			t.suspect = failures > 0
			failures++
		}
		l.tests, counts = append(l.tests, t), nil
	}
	for i, t := range l.tests {
		l.tests[i].Subtests, l.tests[i].Failed = subtests[t.Name], failed[t.Name]
	}
	l.untouched = l.untouched && l.finished
	for i, t := range l.tests {
		if l.untouched && t.Result == "pass" {
			l.tests[i].Result = "skip" // the tool saw nothing of it
		}
	}
	if l.void() { // what ended, ended unseen
		l.tests = slices.DeleteFunc(l.tests, func(t Test) bool { return t.Result != "fail" })
	}
	if fault == "" && l.finished && failures == 0 && failing {
		fault = "it failed, and no test did"
	}
	if fault == "" || fault == errLimit.Error() {
		return l
	}
	for _, name := range running {
		l.tests = append(l.tests, Test{
			Package: pkg, Name: name, Result: "fail", Subtests: subtests[name], Failed: append(failed[name], "did not end: "+fault), suspect: len(running) > 1 || failures > 0,
		})
	}
	if len(running) == 0 && failures == 0 {
		l.tests = append(l.tests, Test{Package: pkg, Name: theBinary, Result: "fail", Failed: []string{fault}})
	}
	return l
}

// merge returns each test's result of all logs: suspicion counts for nothing beside another verdict, a failure more than a pass, and
// a pass more than a skip.
func merge(logs []testLog) []Test {
	type key struct{ pkg, name string }
	all := map[key]Test{}
	rank := func(t Test) int { // what counts more is greater
		n := map[string]int{"skip": 1, "pass": 2, "fail": 3}[t.Result]
		if t.suspect {
			n = 0
		}
		return n
	}
	for _, l := range logs {
		for _, t := range l.tests {
			k := key{t.Package, t.Name}
			have, ok := all[k]
			switch {
			case !ok, rank(t) > rank(have):
				if t.Result == have.Result {
					t.counts = slices.Concat(have.counts, t.counts)
				}
				all[k] = t
			case rank(t) == rank(have):
				have.Seconds, have.Subtests = max(have.Seconds, t.Seconds), max(have.Subtests, t.Subtests)
				have.Failed, have.counts = slices.Concat(have.Failed, t.Failed), slices.Concat(have.counts, t.counts)
				all[k] = have
			}
		}
	}
	var tests []Test
	for _, t := range all {
		slices.Sort(t.counts)
		t.counts = slices.Compact(t.counts)
		slices.Sort(t.Failed)
		t.Failed = slices.Compact(t.Failed)
		tests = append(tests, t)
	}
	slices.SortFunc(tests, func(a, b Test) int { return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name)) })
	return tests
}
