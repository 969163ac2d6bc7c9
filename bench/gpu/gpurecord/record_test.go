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
--- PASS: TestC (0.25s)
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
	if tests[1].Result != "skip" || tests[2].Result != "pass" {
		t.Errorf("%+v", tests)
	}
	if err := (Record{Tests: tests}).fault(); err == nil || !strings.Contains(err.Error(), "TestA failed") {
		t.Errorf("fault: %v", err)
	}
}

func TestHashSources_CommentsApart(t *testing.T) {
	hash := func(code string) string {
		dir := t.TempDir()
		for name, text := range map[string]string{"a.go": code, "plain.go": "package a", "k.ptx": "ptx"} {
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
