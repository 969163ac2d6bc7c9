package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
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
	Runs  []Machine `json:"runs,omitempty"`
	Tests []Test    `json:"tests"`
	// Missing are the tests without a result: PACKAGE.TEST or PACKAGE.TEST.TOOL.
	Missing []string `json:"missing,omitempty"`
	// Sanitizer has an entry for each tool of compute-sanitizer and package.
	Sanitizer []Sanitizer `json:"sanitizer"`
}

// Machine is where tests ran.
type Machine struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	GPUs   int    `json:"gpus"`
}

// Sanitizer is what a tool of compute-sanitizer says of a package's tests. Tests that skip are not counted.
type Sanitizer struct {
	Tool    string `json:"tool"`
	Package string `json:"package"`
	Tests   int    `json:"tests"`
	Summary string `json:"summary"`
	Clean   bool   `json:"clean"`
}

// Files of a folder of results, besides the ledger and the logs.
const (
	sourcesFile = "sources.json"
	machineFile = "machine.json"
)

// begin makes a folder of results of a bundle on this machine. A folder of other code or of another machine is an error.
func begin(dir, bundle string) error {
	devices, err := cuda.Open(1)
	if err != nil {
		return err
	}
	m := Machine{devices[0].Info().Name, "unknown", cuda.Count()}
	if err := devices[0].Close(); err != nil {
		return err
	}
	if version, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output(); err == nil {
		m.Driver, _, _ = strings.Cut(strings.TrimSpace(string(version)), "\n")
	}
	machine, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sources, err := os.ReadFile(filepath.Join(bundle, sourcesFile))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, want := range map[string][]byte{sourcesFile: sources, machineFile: machine} {
		path := filepath.Join(dir, name)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = atomicfile.Write(path, want)
		case err == nil && !bytes.Equal(have, want):
			err = fmt.Errorf("%s (%s) is of other code or another machine (%s here): take another folder", path, bytes.TrimSpace(have), bytes.TrimSpace(want))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// collect makes one record of folders of results of the same code, from one machine or several. Of a test's results a failure
// counts more than a pass, and a pass more than a skip.
func collect(dirs []string) (r Record, err error) {
	rank := map[string]int{"": 0, "skip": 1, "pass": 2, "fail": 3}
	all := map[key]Test{}
	for i, dir := range dirs {
		var s Sources
		var m Machine
		if err := errors.Join(readJSON(filepath.Join(dir, sourcesFile), &s), readJSON(filepath.Join(dir, machineFile), &m)); err != nil {
			return r, fmt.Errorf("%s must be a folder of results: %w", dir, err)
		}
		if i > 0 && s != r.Sources {
			return r, fmt.Errorf("%s is of other code than %s: only results of one bundle can be merged", dir, dirs[0])
		}
		r.Sources, r.Runs, r.GPUs = s, append(r.Runs, m), max(r.GPUs, m.GPUs)
		r.Device, r.Driver = join(r.Device, m.Device), join(r.Driver, m.Driver)
		tests, err := readLedger(dir)
		if err != nil {
			return r, err
		}
		for k, t := range tests {
			if have, ok := all[k]; !ok || rank[t.Result] > rank[have.Result] {
				all[k] = t
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
		if n := len(all); n == 0 || all[n-1].Tool != t.Tool || all[n-1].Package != t.Package {
			all = append(all, Sanitizer{Tool: t.Tool, Package: t.Package, Clean: true})
		}
		x := &all[len(all)-1]
		if t.Result == "skip" {
			continue
		}
		x.Tests++
		if t.Result == "fail" {
			if x.Clean { // what clean tests say does not matter any more
				x.Summary = ""
			}
			x.Clean = false
			x.Summary = strings.TrimPrefix(fmt.Sprintf("%s; %s: %s", x.Summary, t.Name, strings.Join(t.Failed, ", ")), "; ")
		} else if x.Clean {
			x.Summary = cmp.Or(x.Summary, t.Summary)
		}
	}
	return slices.DeleteFunc(all, func(x Sanitizer) bool { return x.Tests == 0 })
}

// tools of compute-sanitizer that a record must cover. It may have results of others (initcheck, synccheck), of some tests or all.
var tools = []string{"memcheck", "racecheck"}

// emulated matches the names of devices that run kernels on the host.
var emulated = regexp.MustCompile(`(?i)emulat`)

// failures says what went wrong.
func (r Record) failures() error {
	var errs []error
	if emulated.MatchString(r.Device) {
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

// gaps says what the record does not cover.
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
