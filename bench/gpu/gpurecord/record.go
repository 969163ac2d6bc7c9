package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/device/cuda"
)

// Record says which code was tested on what, and how it went.
type Record struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	Sources
	// GPUs are how many GPUs the machine had, and Counts the numbers of GPUs that tests of several covered: those that logged
	// "gpus: N" and passed.
	GPUs   int    `json:"gpus,omitempty"`
	Counts []int  `json:"gpu_counts,omitempty"`
	Tests  []Test `json:"tests"`
	// Sanitizer are compute-sanitizer's runs over the op tests; empty where the tool was missing.
	Sanitizer []Sanitizer `json:"sanitizer"`
}

// Test is a test function; its subtests are counted.
type Test struct {
	Package  string   `json:"package"`
	Name     string   `json:"name"`
	Result   string   `json:"result"` // pass, fail or skip
	Seconds  float64  `json:"seconds"`
	Subtests int      `json:"subtests,omitempty"`
	Failed   []string `json:"failed,omitempty"`
	counts   []int    // of GPUs that it covered
}

// Sanitizer is one run of compute-sanitizer.
type Sanitizer struct {
	Tool    string `json:"tool"`
	Package string `json:"package"`
	Tests   int    `json:"tests"`
	Summary string `json:"summary"`
	Clean   bool   `json:"clean"`
}

// What a record must cover.
var (
	packages = []string{"cache", "device_cuda", "kernels", "transfer"}
	tools    = []string{"memcheck", "racecheck"}
)

// fault says what in the record is not as it should be.
func (r Record) fault() error { return errors.Join(r.failures(), r.gaps()) }

// failures says what went wrong.
func (r Record) failures() error {
	var errs []error
	for _, t := range r.Tests {
		if t.Result == "fail" {
			errs = append(errs, fmt.Errorf("%s.%s failed", t.Package, t.Name))
		}
	}
	for _, s := range r.Sanitizer {
		if !s.Clean {
			errs = append(errs, fmt.Errorf("%s is not clean: %s", s.Tool, s.Summary))
		}
	}
	return errors.Join(errs...)
}

// gaps says what the record does not cover.
func (r Record) gaps() error {
	var errs []error
	for _, p := range packages {
		if !slices.ContainsFunc(r.Tests, func(t Test) bool { return t.Package == p && t.Result == "pass" }) {
			errs = append(errs, fmt.Errorf("no test of %s passed", p))
		}
	}
	for _, tool := range tools {
		if !slices.ContainsFunc(r.Sanitizer, func(s Sanitizer) bool { return s.Tool == tool }) {
			errs = append(errs, fmt.Errorf("%s did not run", tool))
		}
	}
	return errors.Join(errs...)
}

func (r Record) String() string {
	n := map[string]int{}
	subtests := 0
	for _, t := range r.Tests {
		n[t.Result]++
		subtests += t.Subtests
	}
	text := fmt.Sprintf("%s, %s: %d tests passed (%d subtests), %d failed, %d skipped", r.Device, r.Driver, n["pass"], subtests, n["fail"], n["skip"])
	if len(r.Counts) > 0 {
		text += fmt.Sprintf("; tests of several GPUs covered %v of %d", r.Counts, r.GPUs)
	}
	for _, s := range r.Sanitizer {
		text += fmt.Sprintf("; %s over %d tests: %s", s.Tool, s.Tests, s.Summary)
	}
	return text
}

// collectRecord reads sources.json, PACKAGE.log and PACKAGE.TOOL.log in a bundle's folder.
func collectRecord(dir string) (r Record, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "sources.json"))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r.Sources); err != nil {
		return r, err
	}
	devices, err := cuda.Open(1)
	if err != nil {
		return r, err
	}
	r.Device, r.GPUs = devices[0].Info().Name, cuda.Count()
	if err := devices[0].Close(); err != nil {
		return r, err
	}
	version, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output()
	if err != nil {
		return r, fmt.Errorf("nvidia-smi: %w", err)
	}
	r.Driver, _, _ = strings.Cut(strings.TrimSpace(string(version)), "\n")
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return r, err
	}
	slices.Sort(logs)
	for _, path := range logs {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(path), ".log"), ".")
		tests, summary, err := readLog(path)
		if err != nil {
			return r, err
		}
		for _, t := range tests {
			if t.Result != "pass" {
				continue
			}
			for _, n := range t.counts {
				if !slices.Contains(r.Counts, n) {
					r.Counts = append(r.Counts, n)
				}
			}
		}
		slices.Sort(r.Counts)
		for i := range tests {
			tests[i].Package = parts[0]
		}
		if len(parts) == 1 {
			r.Tests = append(r.Tests, tests...)
			continue
		}
		passed := slices.ContainsFunc(tests, func(t Test) bool { return t.Result == "pass" })
		failed := slices.ContainsFunc(tests, func(t Test) bool { return t.Result == "fail" })
		r.Sanitizer = append(r.Sanitizer, Sanitizer{
			Tool: parts[1], Package: parts[0], Tests: len(tests), Summary: summary,
			Clean: passed && !failed && clean.MatchString(summary),
		})
	}
	return r, nil
}

var (
	ended   = regexp.MustCompile(`^(\s*)--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)`)
	summary = regexp.MustCompile(`^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)`)
	clean   = regexp.MustCompile(`SUMMARY: 0 (errors|hazards displayed \(0 errors, 0 warnings\))`)
	covers  = regexp.MustCompile(`: gpus: ([1-8])$`)
	crashed = regexp.MustCompile(`^(panic:|fatal error:|SIG|signal |FAIL$)`)
)

// readLog reads what go test -v printed, perhaps under compute-sanitizer.
func readLog(path string) (tests []Test, sanitizer string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	subtests, failed := map[string]int{}, map[string][]string{}
	var counts []int // logged since the last test ended, which go test -v prints before that
	broken, finished := false, false
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := summary.FindStringSubmatch(line); m != nil {
			sanitizer = m[1]
		}
		broken = broken || crashed.MatchString(line)
		finished = finished || line == "PASS"
		if m := covers.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			counts = append(counts, n)
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
		seconds, _ := strconv.ParseFloat(m[4], 64)
		tests = append(tests, Test{Name: top, Result: strings.ToLower(m[2]), Seconds: seconds, counts: counts})
		counts = nil
	}
	for i, t := range tests {
		tests[i].Subtests, tests[i].Failed = subtests[t.Name], failed[t.Name]
	}
	if broken || !finished { // killed, or never started
		tests = append(tests, Test{Name: "(the test binary)", Result: "fail"})
	}
	return tests, sanitizer, lines.Err()
}
