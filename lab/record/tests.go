package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// key tells tests apart.
type key struct{ pkg, name, tool string }

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// readTests returns the tests of a folder of results: those in its lists PACKAGE[.TOOL].list, as PACKAGE.TEST[.TOOL].json says that they ended, and those of
// python.jsonl.
func readTests(dir string) (map[key]*Test, error) {
	tests := map[key]*Test{}
	lists, err := filepath.Glob(filepath.Join(dir, "*.list"))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		names, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		pkg, tool, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ".")
		for _, name := range strings.Fields(string(names)) {
			t := &Test{Package: pkg, Name: name, Tool: tool}
			events, err := readEvents(filepath.Join(dir, t.String()+".json"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err == nil {
				t.judge(events)
			}
			tests[key{pkg, name, tool}] = t
		}
	}
	events, err := readEvents(filepath.Join(dir, "python.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range events { // the last one of a test counts
		t := &Test{Package: e.Package, Name: e.Test, Seconds: e.Elapsed}
		if e.Action != "run" {
			t.Result = e.Action
		}
		if e.Output != "" {
			t.Failed = []string{e.Output}
		}
		tests[key{e.Package, e.Test, ""}] = t
	}
	return tests, nil
}

// readEvents leaves a line out that was cut short by a kill.
func readEvents(path string) (events []event, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			events = append(events, e)
		}
	}
	return events, lines.Err()
}

// judge says how a test ended, from the events of a process that ran only this test.
func (t *Test) judge(events []event) {
	ended, unused := "", false // how the process ended; whether the tool failed because the process made no call of the driver
	for _, e := range events {
		line := strings.TrimSpace(e.Output)
		unused = unused || strings.HasSuffix(line, "Target application terminated before first instrumented API call")
		if _, summary, ok := strings.Cut(line, "= "); ok && strings.Contains(summary, " SUMMARY: ") {
			t.Summary = summary
		}
		if _, count, ok := strings.Cut(line, ": gpus: "); ok && len(count) == 1 {
			t.GPUs = append(t.GPUs, int(count[0]-'0'))
		}
		if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		_, sub, nested := strings.Cut(e.Test, "/")
		switch {
		case e.Test == "":
			ended = e.Action
		case !nested:
			t.Result, t.Seconds = e.Action, e.Elapsed
		default:
			t.Subtests++
			if e.Action == "fail" {
				t.Failed = append(t.Failed, sub)
			}
		}
	}
	fault := ""
	switch {
	case t.Tool != "" && unused && (t.Result == "pass" || t.Result == "skip"):
		t.Result = "skip"
		return
	case t.Result == "" || ended != "pass" && ended != "skip" && t.Result != "fail":
		fault = "its process did not end well"
	case t.Tool != "" && t.Result == "pass" && !strings.Contains(t.Summary, "SUMMARY: 0 errors") && !strings.Contains(t.Summary, "SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"):
		fault = "not clean: " + t.Summary
	}
	if fault != "" {
		t.Result, t.Failed = "fail", append(t.Failed, fault)
	}
}
