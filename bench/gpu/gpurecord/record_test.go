package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadLog_TestsAndSanitizer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kernels.memcheck.log")
	log := `========= COMPUTE-SANITIZER
=== RUN   TestA
=== RUN   TestA/x
--- FAIL: TestA (1.50s)
    --- PASS: TestA/x (0.01s)
    --- FAIL: TestA/y/z (0.01s)
--- SKIP: TestB (0.00s)
=== RUN   TestC
=== RUN   TestC/2
    gpus_test.go:31: gpus: 2
=== RUN   TestC/4
    gpus_test.go:31: gpus: 4
--- PASS: TestC (0.25s)
    --- PASS: TestC/2 (0.1s)
PASS
========= ERROR SUMMARY: 0 errors
`
	if err := os.WriteFile(path, []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	tests, summary, err := readLog(path)
	if err != nil || len(tests) != 3 || summary != "ERROR SUMMARY: 0 errors" || !clean.MatchString(summary) {
		t.Fatalf("%+v, %q, %v", tests, summary, err)
	}
	a := tests[0]
	if a.Name != "TestA" || a.Result != "fail" || a.Seconds != 1.5 || a.Subtests != 2 || len(a.Failed) != 1 || a.Failed[0] != "y/z" {
		t.Errorf("%+v", a)
	}
	if c := tests[2].counts; len(tests[0].counts) != 0 || len(c) != 2 || c[0] != 2 || c[1] != 4 {
		t.Errorf("counts of GPUs: %+v", tests)
	}
	if tests[1].Result != "skip" || tests[2].Result != "pass" {
		t.Errorf("%+v", tests)
	}
	if err := (Record{Tests: tests}).fault(); err == nil || !strings.Contains(err.Error(), "TestA failed") {
		t.Errorf("fault: %v", err)
	}
}

// TestReadLog_Unfinished: a binary that was killed leaves no verdict, and that is a failure.
func TestReadLog_Unfinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.log")
	if err := os.WriteFile(path, []byte("--- PASS: TestA (1.50s)\n=== RUN   TestB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests, _, err := readLog(path)
	if err != nil || len(tests) != 2 || tests[1].Result != "fail" {
		t.Errorf("%+v, %v", tests, err)
	}
}

// TestRecord_MustCoverEverything: every package and both sanitizers.
func TestRecord_MustCoverEverything(t *testing.T) {
	full := func() (r Record) {
		for _, p := range packages {
			r.Tests = append(r.Tests, Test{Package: p, Name: "TestA", Result: "pass"})
		}
		for _, tool := range tools {
			r.Sanitizer = append(r.Sanitizer, Sanitizer{Tool: tool, Clean: true})
		}
		return r
	}
	if err := full().fault(); err != nil {
		t.Errorf("a full record: %v", err)
	}
	for i, p := range packages {
		r := full()
		r.Tests = append(r.Tests[:i], r.Tests[i+1:]...)
		if err := r.fault(); err == nil || !strings.Contains(err.Error(), "no test of "+p+" passed") {
			t.Errorf("without %s: %v", p, err)
		}
	}
	for i, tool := range tools {
		r := full()
		r.Sanitizer = append(r.Sanitizer[:i], r.Sanitizer[i+1:]...)
		if err := r.fault(); err == nil || !strings.Contains(err.Error(), tool+" did not run") {
			t.Errorf("without %s: %v", tool, err)
		}
	}
}

func TestHashSources_CommentsApart(t *testing.T) {
	hash := func(code string) string {
		dir := t.TempDir()
		for name, text := range map[string]string{"a.go": code, "plain.go": "package a", "k.ptx.zst": ""} {
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
}
