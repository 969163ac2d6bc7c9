// Package record keeps the record of GPU tests: which code ran on which machines, and how each test ended. The results are those that go test -json prints, a
// file for each test; docs/gpu.md says how run.sh makes them.
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/lab/gpu"
)

// Record says which code was tested on which machines, and how it went.
type Record struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	Sources
	// GPUs is the largest number of GPUs of a machine. Counts are the numbers of GPUs that passed tests covered.
	GPUs   int   `json:"gpus,omitempty"`
	Counts []int `json:"gpu_counts,omitempty"`
	// Runs has an entry for each folder of results.
	Runs  []gpu.Machine `json:"runs,omitempty"`
	Tests []Test        `json:"tests"`
	// Missing are the tests without a result: PACKAGE.TEST or PACKAGE.TEST.TOOL.
	Missing []string `json:"missing,omitempty"`
	// Sanitizer has an entry for each tool of compute-sanitizer and package.
	Sanitizer []Sanitizer `json:"sanitizer"`
}

// Sanitizer is what a tool of compute-sanitizer says of a package's tests. Tests that skip are not counted.
type Sanitizer struct {
	Tool    string `json:"tool"`
	Package string `json:"package"`
	Tests   int    `json:"tests"`
	Summary string `json:"summary"`
	Clean   bool   `json:"clean"`
}

// Collect makes one record of folders of results of the same code, from one machine or several. Of a test's results a failure
// counts more than a pass, and a pass more than a skip.
func Collect(dirs []string) (r Record, err error) {
	all := map[key]Test{}
	for i, dir := range dirs {
		var s Sources
		var m gpu.Machine
		if err := errors.Join(readJSON(filepath.Join(dir, "sources.json"), &s), readJSON(filepath.Join(dir, "machine.json"), &m)); err != nil {
			return r, fmt.Errorf("%s must be a folder of results: %w", dir, err)
		}
		if i > 0 && s != r.Sources {
			return r, fmt.Errorf("%s is of other code than %s: only results of one bundle can be merged", dir, dirs[0])
		}
		r.Sources, r.Runs, r.GPUs = s, append(r.Runs, m), max(r.GPUs, m.GPUs)
		r.Device, r.Driver = join(r.Device, m.Device), join(r.Driver, m.Driver)
		tests, err := readTests(dir)
		if err != nil {
			return r, err
		}
		rank := []string{"", "skip", "pass", "fail"}
		for k, t := range tests {
			if have, ok := all[k]; !ok || slices.Index(rank, t.Result) > slices.Index(rank, have.Result) {
				all[k] = *t
			}
		}
	}
	var under []Test
	for _, t := range all {
		switch {
		case t.Result == "" && t.Tool != "" && !slices.Contains(tools, t.Tool): // need not run
		case t.Result == "":
			r.Missing = append(r.Missing, t.String())
		case t.Tool != "":
			under = append(under, t)
		default:
			r.Tests = append(r.Tests, t)
			if t.Result == "pass" {
				r.Counts = append(r.Counts, t.GPUs...)
			}
		}
	}
	slices.Sort(r.Missing)
	slices.Sort(r.Counts)
	r.Counts = slices.Compact(r.Counts)
	for _, tests := range [][]Test{r.Tests, under} {
		slices.SortFunc(tests, func(a, b Test) int {
			return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name))
		})
	}
	r.Sanitizer = sanitized(under)
	return r, nil
}

func readJSON(path string, to any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// join adds a name to others, unless it is one of them.
func join(names, name string) string {
	if names == "" || slices.Contains(strings.Split(names, " and "), name) {
		return cmp.Or(names, name)
	}
	return names + " and " + name
}

// sanitized sums up what tools found, of tests sorted by tool and package.
func sanitized(tests []Test) (all []Sanitizer) {
	for _, t := range tests {
		if t.Result == "skip" {
			continue
		}
		if n := len(all); n == 0 || all[n-1].Tool != t.Tool || all[n-1].Package != t.Package {
			all = append(all, Sanitizer{Tool: t.Tool, Package: t.Package, Summary: t.Summary, Clean: true})
		}
		x := &all[len(all)-1]
		x.Tests++
		if t.Result == "fail" {
			if x.Clean { // what clean tests say does not matter any more
				x.Summary = ""
			}
			x.Clean = false
			x.Summary = strings.TrimPrefix(fmt.Sprintf("%s; %s: %s", x.Summary, t.Name, strings.Join(t.Failed, ", ")), "; ")
		}
	}
	return all
}

// tools of compute-sanitizer that a record must cover. It may have results of others (initcheck, synccheck), of some tests or all.
var tools = []string{"memcheck", "racecheck"}

// Faults says what went wrong, and what the record does not cover.
func (r Record) Faults(packages []string) error { return errors.Join(r.failures(), r.gaps(packages)) }

func (r Record) failures() error {
	var errs []error
	if strings.Contains(strings.ToLower(r.Device), "emulat") {
		errs = append(errs, fmt.Errorf("device (%s) must not be an emulated one", r.Device))
	}
	for _, t := range r.Tests {
		if t.Result == "fail" {
			errs = append(errs, fmt.Errorf("%v failed", t))
		}
	}
	for _, s := range r.Sanitizer {
		if !s.Clean {
			errs = append(errs, fmt.Errorf("%s is not clean: %s", s.Tool, s.Summary))
		}
	}
	return errors.Join(errs...)
}

func (r Record) gaps(packages []string) error {
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
		errs = append(errs, fmt.Errorf("%d tests did not run, among them %s", n, strings.Join(r.Missing[:min(n, 8)], ", ")))
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

// Owed notes that code has yet to run on a GPU, or under compute-sanitizer.
type Owed struct {
	Sources
	// Why says what changed since the record, or what the record lacks.
	Why string `json:"why"`
}

// Check says what of a record does not hold for the code below root. owedPath is where a note may be that tests are owed; it lets a record of other code, or with
// gaps, pass if it names exactly this code. Check repeats the note, so that nobody takes the code for tested.
func Check(root, path, owedPath string, packages []string) (said string, err error) {
	var r Record
	if err := readJSON(path, &r); err != nil {
		return "", err
	}
	now, err := HashSources(root)
	if err != nil {
		return "", err
	}
	gaps, fault := r.gaps(packages), r.failures()
	var o Owed
	switch err := readJSON(owedPath, &o); {
	case owedPath == "" || errors.Is(err, fs.ErrNotExist):
		fault = errors.Join(fault, gaps)
		if fault == nil && r.Sources != now {
			what := "CUDA sources differ"
			if now.PTX != r.PTX {
				what = "PTX differs"
			}
			return "", fmt.Errorf("%s: the %s from what was tested; run make gpu-test on a GPU, or make gpu-owed where there is none", path, what)
		}
	case err != nil:
		return "", err
	case o.Why == "":
		return "", fmt.Errorf("%s: why must say what changed", owedPath)
	case fault != nil:
	case r.Sources == now && gaps == nil:
		return "", fmt.Errorf("%s: the code is what was tested: nothing is owed, %s must go", path, owedPath)
	case o.Sources != now:
		return "", fmt.Errorf("%s: the note that tests are owed is of other code; run make gpu-test on a GPU, or make gpu-owed where there is none", owedPath)
	case r.Sources == now:
		said = fmt.Sprintf("OWED: %s: %s\n", strings.ReplaceAll(gaps.Error(), "\n", ", "), o.Why)
	default:
		said = fmt.Sprintf("OWED: this code has changed since, and has not run on a GPU: %s\n", o.Why)
	}
	if fault != nil {
		return "", fmt.Errorf("%s: %w; run make gpu-test on a GPU", path, fault)
	}
	return fmt.Sprintf("%v\n%s", r, said), nil
}
