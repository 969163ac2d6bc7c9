package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Record says which code was tested on what, and how it went.
type Record struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	Sources
	// GPUs are how many GPUs a machine had at most, and Counts the numbers of GPUs that tests of several covered: those that logged
	// "gpus: N" and passed.
	GPUs   int   `json:"gpus,omitempty"`
	Counts []int `json:"gpu_counts,omitempty"`
	// Runs are the runs that the record is of, one for each folder of results.
	Runs  []Run  `json:"runs,omitempty"`
	Tests []Test `json:"tests"`
	// Missing are tests that were to be run and were not: PACKAGE.TEST, or PACKAGE.TOOL.TEST.
	Missing []string `json:"missing,omitempty"`
	// Sanitizer are compute-sanitizer's runs over the op tests; empty where the tool was missing.
	Sanitizer []Sanitizer `json:"sanitizer"`
}

// Run is what one folder of results is of.
type Run struct {
	Machine
	Steps []Step `json:"steps,omitempty"`
}

// Sanitizer is what a tool of compute-sanitizer says of a package's tests.
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

// emulated is what devices are called that run kernels on the host.
var emulated = regexp.MustCompile(`(?i)emulat`)

// fault says what in the record is not as it should be.
func (r Record) fault() error { return errors.Join(r.failures(), r.gaps()) }

// failures says what went wrong.
func (r Record) failures() error {
	var errs []error
	if emulated.MatchString(r.Device) {
		errs = append(errs, fmt.Errorf("device (%s) must not be an emulated one", r.Device))
	}
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
	if n := len(r.Missing); n > 0 {
		names, more := r.Missing, ""
		if n > 8 {
			names, more = names[:8], ", …"
		}
		errs = append(errs, fmt.Errorf("%d tests did not run: %s%s", n, strings.Join(names, ", "), more))
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

// collectRecord makes one record of the results of several runs of the same code, on one machine or several.
func collectRecord(paths []string) (r Record, err error) {
	var logs []testLog
	wanted := map[[2]string]bool{} // packages with a tool or "", by test
	for i, path := range paths {
		from, err := readResults(path)
		if err != nil {
			return r, err
		}
		var s Sources
		run := Run{}
		if err := errors.Join(from.decode(sourcesFile, &s), from.decode(machineFile, &run.Machine)); err != nil {
			return r, err
		}
		if i > 0 && s != r.Sources {
			return r, fmt.Errorf("%s is of other code than %s: results of one bundle can be merged", path, paths[0])
		}
		r.Sources = s
		if run.Steps, err = readSteps(from.files[stepsFile]); err != nil {
			return r, fmt.Errorf("%s: %w", path, err)
		}
		of, err := from.logs()
		if err != nil {
			return r, err
		}
		logs = append(logs, of...)
		for _, base := range from.named(".list") {
			for name := range strings.Lines(string(from.files[base+".list"])) {
				wanted[[2]string{base, strings.TrimSpace(name)}] = true
			}
		}
		r.Runs = append(r.Runs, run)
		r.GPUs = max(r.GPUs, run.GPUs)
		r.Device, r.Driver = beside(r.Device, run.Device), beside(r.Driver, run.Driver)
	}
	var plain []testLog
	under := map[[2]string][]testLog{} // by package and tool
	for _, l := range logs {
		if l.tool == "" {
			plain = append(plain, l)
			continue
		}
		under[[2]string{l.pkg, l.tool}] = append(under[[2]string{l.pkg, l.tool}], l)
	}
	r.Tests = merge(plain)
	for _, t := range r.Tests {
		delete(wanted, [2]string{t.Package, t.Name})
		for _, n := range t.counts {
			if t.Result == "pass" && !slices.Contains(r.Counts, n) {
				r.Counts = append(r.Counts, n)
			}
		}
	}
	slices.Sort(r.Counts)
	for k, logs := range under {
		x := sanitized(k[0], k[1], logs)
		for _, t := range merge(logs) {
			delete(wanted, [2]string{x.Package + "." + x.Tool, t.Name})
		}
		r.Sanitizer = append(r.Sanitizer, x)
	}
	slices.SortFunc(r.Sanitizer, func(a, b Sanitizer) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Package, b.Package))
	})
	for k := range wanted {
		r.Missing = append(r.Missing, k[0]+"."+k[1])
	}
	slices.Sort(r.Missing)
	return r, nil
}

// beside adds a name to others, unless it is there.
func beside(names, name string) string {
	if names == "" || slices.Contains(strings.Split(names, " and "), name) {
		return cmp.Or(names, name)
	}
	return names + " and " + name
}

// sanitized sums up what a tool found in several processes.
func sanitized(pkg, tool string, logs []testLog) Sanitizer {
	tests := merge(logs)
	x := Sanitizer{Tool: tool, Package: pkg}
	for _, t := range tests {
		if t.Result != "skip" {
			x.Tests++
		}
		x.Clean = x.Clean || t.Result == "pass"
	}
	var clean, other []string
	for _, l := range logs {
		switch {
		case l.clean() && !l.void() && !l.untouched:
			clean = append(clean, l.summary)
		case !l.clean():
			other = append(other, cmp.Or(l.summary, fmt.Sprintf("%d complaints, then cut off", l.complaints)))
		}
	}
	for _, t := range tests {
		if t.Result == "fail" {
			other = append(other, t.Name+" failed")
		}
	}
	x.Clean = x.Clean && len(other) == 0
	all := other
	if len(other) == 0 {
		all = slices.Compact(clean)
	}
	x.Summary = strings.Join(all, "; ")
	return x
}
