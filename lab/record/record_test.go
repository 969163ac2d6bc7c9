package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecord_MustCoverEverything: every package and both sanitizers.
func TestRecord_MustCoverEverything(t *testing.T) {
	packages := []string{"cache", "kernels"}
	full := func() (r Record) {
		for _, p := range packages {
			r.Tests = append(r.Tests, Test{Package: p, Name: "TestA", Result: "pass"})
		}
		for _, tool := range tools {
			r.Sanitizer = append(r.Sanitizer, Sanitizer{Tool: tool, Clean: true})
		}
		return r
	}
	if err := full().Faults(packages); err != nil {
		t.Errorf("a full record: %v", err)
	}
	for i, p := range packages {
		r := full()
		r.Tests[i].Result = "skip"
		if err := r.gaps(packages); err == nil || !strings.Contains(err.Error(), "no test of "+p+" passed") {
			t.Errorf("without %s: %v", p, err)
		}
	}
	for i, tool := range tools {
		r := full()
		r.Sanitizer = append(r.Sanitizer[:i], r.Sanitizer[i+1:]...)
		if err := r.gaps(packages); err == nil || !strings.Contains(err.Error(), tool+" did not run") {
			t.Errorf("without %s: %v", tool, err)
		}
		r = full()
		r.Sanitizer[i].Clean, r.Sanitizer[i].Summary = false, "3 errors"
		if err := r.failures(); err == nil || err.Error() != tool+" is not clean: 3 errors" {
			t.Errorf("%s not clean: %v", tool, err)
		}
	}
	r := full()
	r.Tests[0].Result = "fail"
	if err := r.failures(); err == nil || err.Error() != "cache.TestA failed" {
		t.Errorf("a failure: %v", err)
	}
}

// TestRecord_Committed: the committed record is readable and has no failure.
func TestRecord_Committed(t *testing.T) {
	var r Record
	if err := readJSON("../../docs/results/gpu-test.json", &r); err != nil {
		t.Fatal(err)
	}
	if err := r.failures(); err != nil || len(r.Tests) == 0 || r.Device == "" || r.PTX == "" || r.Go == "" || len(r.Runs) == 0 || r.Runs[0].GPUs == 0 {
		t.Errorf("%v: %v", r, err)
	}
}

// folder makes a folder of results.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// events are what go test -json prints of a test that ended so, and of its process.
func events(test, action, process string, output ...string) string {
	text := `{"Action":"start"}` + "\n" + `{"Action":"run","Test":"` + test + `"}` + "\n"
	for _, line := range output {
		text += fmt.Sprintf("{\"Action\":\"output\",\"Test\":%q,\"Output\":%q}\n", test, line+"\n")
	}
	if action != "" {
		text += `{"Action":"` + action + `","Test":"` + test + `","Elapsed":3}` + "\n"
	}
	return text + `{"Action":"` + process + `","Elapsed":4}` + "\n"
}

// TestCollect_Merges: results of one GPU and of two make one record, whichever way round. What only the second machine could run
// passed. The counts of GPUs and what neither machine ran are listed, and the record names the machines.
func TestCollect_Merges(t *testing.T) {
	const sources, clean = `{"ptx":"p","go":"g"}`, "========= ERROR SUMMARY: 0 errors"
	one := folder(t, map[string]string{
		"sources.json": sources, "machine.json": `{"device":"GPU X","driver":"1","gpus":1}`,
		"cache.list": "TestA\nTestGPUs\nTestNever\n", "kernels.memcheck.list": "TestK\nTestL\nTestM\n", "kernels.synccheck.list": "TestK\nTestL\n",
		"cache.TestA.json": events("TestA", "pass", "pass"), "cache.TestGPUs.json": events("TestGPUs", "skip", "pass"),
		"kernels.TestK.memcheck.json": events("TestK", "pass", "pass", clean), "kernels.TestK.synccheck.json": events("TestK", "pass", "pass", clean),
		"kernels.TestM.memcheck.json": events("TestM", "skip", "pass", clean),
		"python.jsonl": `{"Action":"run","Package":"python","Test":"t.py::a"}
{"Action":"run","Package":"python","Test":"t.py::b"}
{"Action":"pass","Package":"python","Test":"t.py::a","Elapsed":2}
{"Action":"pass","Package":"python","Test":"t.py::`, // cut short by a kill
	})
	two := folder(t, map[string]string{
		"sources.json": sources, "machine.json": `{"device":"GPU X","driver":"1","gpus":2}`,
		"cache.list": "TestGPUs\n", "cache.TestGPUs.json": events("TestGPUs", "pass", "pass", "    x_test.go:7: gpus: 2"),
	})
	for _, dirs := range [][]string{{one, two}, {two, one}} {
		r, err := Collect(dirs)
		if err != nil {
			t.Fatal(err)
		}
		if r.Device != "GPU X" || r.Driver != "1" || r.GPUs != 2 || len(r.Counts) != 1 || r.Counts[0] != 2 || len(r.Runs) != 2 || r.PTX != "p" {
			t.Errorf("%+v", r)
		}
		if len(r.Tests) != 3 || r.Tests[0].Result != "pass" || r.Tests[1].Name != "TestGPUs" || r.Tests[1].Result != "pass" || r.Tests[1].Seconds != 3 || r.Tests[2].Name != "t.py::a" {
			t.Errorf("%+v", r.Tests)
		}
		if got := strings.Join(r.Missing, " "); got != "cache.TestNever kernels.TestL.memcheck python.t.py::b" {
			t.Errorf("missing: %s", got)
		}
		if err := r.gaps(nil); err == nil || !strings.Contains(err.Error(), "3 tests did not run, among them cache.TestNever") {
			t.Errorf("gaps: %v", err)
		}
		if s := r.Sanitizer; len(s) != 2 || s[0].Tool != "memcheck" || s[1].Tool != "synccheck" {
			t.Errorf("%+v", s)
		}
		for _, s := range r.Sanitizer {
			if !s.Clean || s.Tests != 1 || s.Summary != "ERROR SUMMARY: 0 errors" {
				t.Errorf("%+v", s)
			}
		}
	}
	other := folder(t, map[string]string{"sources.json": `{"ptx":"q","go":"g"}`, "machine.json": `{}`})
	if _, err := Collect([]string{one, other}); err == nil || !strings.Contains(err.Error(), "is of other code than") {
		t.Errorf("other code: %v", err)
	}
	if _, err := Collect([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "must be a folder of results") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := (Record{Device: "Emulated GPU"}).failures(); err == nil || !strings.Contains(err.Error(), "must not be an emulated one") {
		t.Errorf("an emulated GPU: %v", err)
	}
}

// TestJudge: a test passes if it says so and its process ended well; under a tool, if that found nothing.
func TestJudge(t *testing.T) {
	const unused = "========= Error: Target application terminated before first instrumented API call"
	for _, c := range []struct {
		name, tool, text, result, failed string
	}{
		{"passed", "", events("TestA", "pass", "pass"), "pass", ""},
		{"skipped", "", events("TestA", "skip", "pass"), "skip", ""},
		{"failed", "", events("TestA", "fail", "fail"), "fail", ""},
		{"crashed in the test", "", events("TestA", "", "fail", "panic: x"), "fail", "did not end well"},
		{"crashed afterwards", "", events("TestA", "pass", "fail"), "fail", "did not end well"},
		{"killed", "", `{"Action":"run","Test":"TestA"}`, "fail", "did not end well"},
		{"no events", "", "", "fail", "did not end well"},
		{"a subtest failed", "", `{"Action":"fail","Test":"TestA/b"}` + "\n" + events("TestA", "fail", "fail"), "fail", "b"},
		{"clean", "racecheck", events("TestA", "pass", "pass", "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"), "pass", ""},
		{"hazards", "racecheck", events("TestA", "pass", "pass", "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)"), "fail", "not clean: RACECHECK SUMMARY: 1 hazard"},
		{"no summary", "memcheck", events("TestA", "pass", "pass"), "fail", "not clean"},
		{"no call of the driver", "memcheck", events("TestA", "pass", "fail", unused), "skip", ""},
	} {
		dir := folder(t, map[string]string{
			strings.TrimSuffix("kernels."+c.tool, ".") + ".list": "TestA\n", strings.TrimSuffix("kernels.TestA."+c.tool, ".") + ".json": c.text,
		})
		tests, err := readTests(dir)
		if err != nil {
			t.Fatal(err)
		}
		x := tests[key{"kernels", "TestA", c.tool}]
		if x == nil || x.Result != c.result || !strings.Contains(strings.Join(x.Failed, ", "), c.failed) {
			t.Errorf("%s: %+v, want %s, %q", c.name, x, c.result, c.failed)
		}
	}
}

// TestSanitized: one test that is not clean makes the tool unclean. A tool that saw nothing did not run.
func TestSanitized(t *testing.T) {
	ok := Test{Package: "kernels", Name: "TestA", Tool: "memcheck", Result: "pass", Summary: "ERROR SUMMARY: 0 errors"}
	skip, bad := ok, ok
	skip.Result = "skip"
	bad.Name, bad.Result, bad.Failed = "TestB", "fail", []string{"memcheck is not clean: ERROR SUMMARY: 3 errors"}
	for _, c := range []struct {
		tests []Test
		want  string
	}{
		{[]Test{ok, skip, ok}, "ERROR SUMMARY: 0 errors"},
		{[]Test{ok, bad, ok}, "TestB: memcheck is not clean: ERROR SUMMARY: 3 errors"},
	} {
		s := sanitized(c.tests)
		if len(s) != 1 || s[0].Summary != c.want || s[0].Clean != (c.tests[1].Result != "fail") || s[0].Tests != 2+len(c.tests[1].Failed) {
			t.Errorf("want %q: %+v", c.want, s)
		}
	}
	if s := sanitized([]Test{skip}); len(s) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestHashSources_CommentsApart(t *testing.T) {
	hash := func(code string, inC ...string) string {
		dir := t.TempDir()
		for name, text := range map[string]string{"a.go": code, "plain.go": "package a", "a.c": strings.Join(inC, ""), "k.ptx.zst": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := HashSources(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.Go
	}
	a := hash("//go:build cuda\n\npackage a\n\nvar x = 1 // one\n")
	if b := hash("//go:build cuda && linux\n\n// Package a.\npackage a\n\nvar x = 1\n"); a != b {
		t.Error("a comment changes the hash")
	}
	if b := hash("//go:build cuda\n\npackage a\n\nvar x = 2\n"); a == b {
		t.Error("code does not change the hash")
	}
	if b := hash("//go:build cuda\n\npackage a\n\nvar x = 1\n", "int x;"); a != b {
		t.Error("C without the build tag changes the hash")
	}
	if b := hash("//go:build cuda\n\npackage a\n\nvar x = 1\n", "//go:build cuda\n\nint x;"); a == b {
		t.Error("C with the build tag does not change the hash")
	}
}

// TestCheck: a record passes if it is of the code, or beside a note of exactly the code; a note beside a record of the code says what that record lacks.
func TestCheck(t *testing.T) {
	root := folder(t, map[string]string{"a.go": "//go:build cuda\n\npackage a\n", "k.ptx.zst": ""})
	now, err := HashSources(root)
	if err != nil {
		t.Fatal(err)
	}
	before, owed := Sources{PTX: now.PTX, Go: "b"}, func(s Sources) *Owed { return &Owed{Sources: s, Why: "new kernels"} }
	all := []Sanitizer{{Tool: "memcheck", Clean: true}, {Tool: "racecheck", Clean: true}}
	for _, c := range []struct {
		name   string
		record Record
		owed   *Owed
		want   string // in what it says, or in the error
		passes bool
	}{
		{"tested", Record{Sources: now, Sanitizer: all}, nil, "0 tests passed", true},
		{"changed", Record{Sources: before, Sanitizer: all}, nil, "CUDA sources differ", false},
		{"all changed", Record{Sources: Sources{PTX: "x", Go: "y"}, Sanitizer: all}, nil, "PTX differs", false},
		{"a gap", Record{Sources: now, Sanitizer: all[:1]}, nil, "racecheck did not run", false},
		{"owed", Record{Sources: before, Sanitizer: all}, owed(now), "OWED: this code has changed since, and has not run on a GPU: new kernels", true},
		{"owed, and changed again", Record{Sources: before, Sanitizer: all}, owed(before), "of other code", false},
		{"owed no more", Record{Sources: now, Sanitizer: all}, owed(now), "must go", false},
		{"a tool is owed", Record{Sources: now, Sanitizer: all[:1]}, owed(now), "OWED: racecheck did not run: new kernels", true},
		{"a tool is owed of other code", Record{Sources: now, Sanitizer: all[:1]}, owed(before), "of other code", false},
		{"owed without a reason", Record{Sources: before, Sanitizer: all}, &Owed{Sources: now}, "why must say", false},
		{"failed, and owed", Record{Sources: before, Sanitizer: []Sanitizer{{Tool: "memcheck"}}}, owed(now), "memcheck is not clean", false},
	} {
		files := map[string]any{"record.json": c.record}
		if c.owed != nil {
			files["owed.json"] = c.owed
		}
		dir := t.TempDir()
		for name, v := range files {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		said, err := Check(root, filepath.Join(dir, "record.json"), filepath.Join(dir, "owed.json"), nil)
		if err != nil {
			said = err.Error()
		}
		if (err == nil) != c.passes || !strings.Contains(said, c.want) {
			t.Errorf("%s: %s (%v)", c.name, said, err)
		}
	}
}
