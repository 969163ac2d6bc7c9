package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Test is a test function of a package and how it ended. Subtests are counted.
type Test struct {
	Package string `json:"package"`
	Name    string `json:"name"`
	// Tool is the tool of compute-sanitizer that the test ran under, if any.
	Tool string `json:"tool,omitempty"`
	// Result is pass, fail or skip, or empty if the test has not ended.
	Result   string  `json:"result"`
	Seconds  float64 `json:"seconds"`
	Subtests int     `json:"subtests,omitempty"`
	// Failed names the subtests that failed, and says what else went wrong.
	Failed []string `json:"failed,omitempty"`
	// GPUs are the numbers of GPUs that the test covered: it logs "gpus: N".
	GPUs []int `json:"gpus,omitempty"`
	// Summary is the tool's last line.
	Summary string `json:"summary,omitempty"`
}

func (t Test) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s.%s.%s", t.Package, t.Name, t.Tool), ".")
}

var (
	isTest  = regexp.MustCompile(`^(Test|Fuzz|Example)[A-Za-z0-9_]*$`)
	ended   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)`)
	covers  = regexp.MustCompile(`: gpus: ([1-8])$`)
	summary = regexp.MustCompile(`^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)`)
	clean   = regexp.MustCompile(`SUMMARY: 0 (errors|hazards displayed \(0 errors, 0 warnings\))`)
	unused  = regexp.MustCompile(`^=+ Error: Target application terminated before first instrumented API call`)
)

// judge says how a test ended, from the log of a process that ran only this test. fault says why the process did not end well.
func (t Test) judge(log, fault string) Test {
	noGPU := false // the tool fails if the process makes no call of the driver
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		noGPU = noGPU || unused.MatchString(line)
		if m := summary.FindStringSubmatch(line); m != nil {
			t.Summary = m[1]
		}
		if m := covers.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			t.GPUs = append(t.GPUs, n)
		}
		m := ended.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if top, sub, nested := strings.Cut(m[2], "/"); nested {
			t.Subtests++
			if m[1] == "FAIL" {
				t.Failed = append(t.Failed, sub)
			}
		} else if top == t.Name {
			t.Result = strings.ToLower(m[1])
			t.Seconds, _ = strconv.ParseFloat(m[3], 64)
		}
	}
	switch {
	case t.Tool != "" && noGPU && (t.Result == "pass" || t.Result == "skip"):
		t.Result = "skip"
		return t
	case fault == "" && t.Result == "":
		fault = "the log has no result"
	case fault == "" && t.Tool != "" && t.Result == "pass" && !clean.MatchString(t.Summary):
		fault = t.Tool + " is not clean: " + t.Summary
	}
	if fault != "" {
		t.Result, t.Failed = "fail", append(t.Failed, fault)
	}
	return t
}

// ledgerFile of a folder of results has a line for each test that is to run, and another one with the result when the test has
// ended. The last line of a test counts.
const ledgerFile = "tests.jsonl"

// key tells tests apart.
type key struct{ pkg, name, tool string }

func (t Test) key() key { return key{t.Package, t.Name, t.Tool} }

// readLedger returns the tests of a folder. A line that was cut short by a kill is left out: its test runs again.
func readLedger(dir string) (map[key]Test, error) {
	b, err := os.ReadFile(filepath.Join(dir, ledgerFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tests := map[key]Test{}
	for line := range bytes.Lines(b) {
		var t Test
		if json.Unmarshal(line, &t) == nil {
			tests[t.key()] = t
		}
	}
	return tests, nil
}

// addTo adds a line to a ledger, with one call of Write: goroutines may add at once.
func (t Test) addTo(ledger *os.File) error { return json.NewEncoder(ledger).Encode(t) }

// tester runs tests, each in a process of its own: a test that hangs, crashes or breaks the GPU's context fails alone. A test that
// has a result in the folder does not run again. Each process has a log PACKAGE.TEST[.TOOL].log.
type tester struct {
	dir      string
	binaries []string // paths PACKAGE.test
	pattern  string
	tools    []string // of compute-sanitizer; one empty name: none
	short    bool
	workers  int
	// each and limit are the most that one test and all tests may take. A test that each cuts off has failed. One that limit cuts
	// off has no result.
	each, limit time.Duration
	out         io.Writer
}

func (r *tester) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	pattern, err := regexp.Compile(r.pattern)
	if err != nil {
		return err
	}
	tests, err := readLedger(r.dir)
	if err != nil {
		return err
	}
	ledger, err := os.OpenFile(filepath.Join(r.dir, ledgerFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer ledger.Close()
	if _, err := ledger.WriteString("\n"); err != nil { // ends a line that was cut short
		return err
	}
	binaries := map[key]string{} // of the tests that match
	var wanted []Test
	for _, binary := range r.binaries {
		out, err := exec.CommandContext(ctx, binary, "-test.list", ".").Output()
		if err != nil {
			return fmt.Errorf("%s -test.list: %w", binary, err)
		}
		for _, name := range strings.Fields(string(out)) {
			for _, tool := range r.tools {
				t := Test{Package: strings.TrimSuffix(filepath.Base(binary), ".test"), Name: name, Tool: tool}
				if !isTest.MatchString(name) {
					continue
				}
				if _, ok := tests[t.key()]; !ok {
					if err := t.addTo(ledger); err != nil {
						return err
					}
				}
				if pattern.MatchString(name) {
					binaries[t.key()] = binary
					wanted = append(wanted, t)
				}
			}
		}
	}
	queue := make(chan Test, len(wanted))
	for _, t := range wanted {
		if tests[t.key()].Result == "" {
			queue <- t
		}
	}
	close(queue)
	errs := make([]error, max(1, r.workers))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for t := range queue {
				if errs[i] == nil && ctx.Err() == nil {
					errs[i] = r.process(ctx, binaries[t.key()], t, ledger)
				}
			}
		})
	}
	wg.Wait()
	if tests, err = readLedger(r.dir); err != nil {
		return err
	}
	names := map[string][]string{} // by result
	for _, t := range wanted {
		result := tests[t.key()].Result
		names[result] = append(names[result], t.String())
	}
	fmt.Fprintf(r.out, "%d tests passed, %d skipped, %d failed, %d did not run\n", len(names["pass"]), len(names["skip"]), len(names["fail"]), len(names[""]))
	if failed := names["fail"]; len(failed) > 0 {
		errs = append(errs, fmt.Errorf("failed: %s", strings.Join(failed, ", ")))
	}
	if missing := names[""]; len(missing) > 0 {
		errs = append(errs, fmt.Errorf("did not run: %s", strings.Join(missing, ", ")))
	}
	return errors.Join(errs...)
}

// rowsWithRaces are subtests that racecheck leaves out: in a damaged list of codec sparse a position may be there twice, and two lanes put its
// entry. The row counts as corrupt, whichever comes last. Nothing else is read back from there.
const rowsWithRaces = "Corrupt$/^sparse"

// process runs one test and adds its result, unless ctx ended first. The error says that the test could not be run.
func (r *tester) process(ctx context.Context, binary string, t Test, ledger *os.File) error {
	// Linux kills the process together with the thread that started it. The thread has to stay until the process has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	argv := []string{binary, "-test.v", "-test.timeout=0", "-test.run=^" + t.Name + "$"}
	if r.short {
		argv = append(argv, "-test.short")
	}
	if t.Tool == "memcheck" { // a driver call that fails is no fault of a kernel: one asks for parameters until there are no more
		argv = append([]string{"--report-api-errors", "no"}, argv...)
	}
	if t.Tool == "racecheck" { // see rowsWithRaces
		argv = append(argv, "-test.skip="+rowsWithRaces)
	}
	if t.Tool != "" {
		argv = append([]string{"compute-sanitizer", "--tool", t.Tool}, argv...)
	}
	path := filepath.Join(r.dir, t.String()+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	limited, cancel := context.WithTimeout(ctx, r.each)
	defer cancel()
	cmd := command(limited, argv)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	err = cmd.Wait()
	killRest(cmd)
	fault := ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil
	case limited.Err() != nil:
		fault = fmt.Sprintf("did not end within %v", r.each)
	default:
		fault = err.Error()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t = t.judge(string(text), fault)
	if t.Result == "fail" {
		fmt.Fprintf(r.out, "FAILED: %v: %s\n", t, strings.Join(t.Failed, ", "))
	}
	return t.addTo(ledger)
}
