package main

import (
	"errors"
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
	if err := errors.Join(full().failures(), full().gaps(packages)); err != nil {
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
	if err := readJSON("../../../docs/results/gpu-test.json", &r); err != nil {
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

// TestCollect_Merges: results of one GPU and of two make one record, whichever way round. What only the second machine could run
// passed. The counts of GPUs and what neither machine ran are listed, and the record names the machines.
func TestCollect_Merges(t *testing.T) {
	const sources = `{"ptx":"p","go":"g"}`
	one := folder(t, map[string]string{
		sourcesFile: sources, machineFile: `{"device":"GPU X","driver":"1","gpus":1}`,
		ledgerFile: `{"package":"cache","name":"TestA","result":""}
{"package":"cache","name":"TestGPUs","result":""}
{"package":"cache","name":"TestNever","result":""}
{"package":"kernels","name":"TestK","tool":"memcheck","result":""}
{"package":"kernels","name":"TestL","tool":"memcheck","result":""}
{"package":"kernels","name":"TestL","tool":"synccheck","result":""}
{"package":"kernels","name":"TestK","tool":"synccheck","result":"pass","summary":"ERROR SUMMARY: 0 errors"}
{"package":"kernels","name":"TestM","tool":"memcheck","result":"skip"}
{"package":"cache","name":"TestA","result":"pass","seconds":1}
{"package":"kernels","name":"TestK","tool":"memcheck","result":"pass","summary":"ERROR SUMMARY: 0 errors"}
{"package":"cache","name":"TestGPUs","result":"skip"}
{"package":"cache","name":"TestNever","res`, // cut short by a kill
	})
	two := folder(t, map[string]string{
		sourcesFile: sources, machineFile: `{"device":"GPU X","driver":"1","gpus":2}`,
		ledgerFile: `{"package":"cache","name":"TestGPUs","result":"pass","seconds":3,"gpus":[2]}` + "\n",
	})
	for _, dirs := range [][]string{{one, two}, {two, one}} {
		r, err := collect(dirs)
		if err != nil {
			t.Fatal(err)
		}
		if r.Device != "GPU X" || r.Driver != "1" || r.GPUs != 2 || len(r.Counts) != 1 || r.Counts[0] != 2 || len(r.Runs) != 2 || r.PTX != "p" {
			t.Errorf("%+v", r)
		}
		if len(r.Tests) != 2 || r.Tests[0].Result != "pass" || r.Tests[1].Name != "TestGPUs" || r.Tests[1].Result != "pass" || r.Tests[1].Seconds != 3 {
			t.Errorf("%+v", r.Tests)
		}
		if got := strings.Join(r.Missing, " "); got != "cache.TestNever kernels.TestL.memcheck" {
			t.Errorf("missing: %s", got)
		}
		if err := r.gaps(nil); err == nil || !strings.Contains(err.Error(), "2 tests did not run, among them cache.TestNever") {
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
	other := folder(t, map[string]string{sourcesFile: `{"ptx":"q","go":"g"}`, machineFile: `{}`})
	if _, err := collect([]string{one, other}); err == nil || !strings.Contains(err.Error(), "is of other code than") {
		t.Errorf("other code: %v", err)
	}
	if _, err := collect([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "must be a folder of results") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := (Record{Device: "Emulated GPU"}).failures(); err == nil || !strings.Contains(err.Error(), "must not be an emulated one") {
		t.Errorf("an emulated GPU: %v", err)
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
		s, err := hashSources(dir)
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
