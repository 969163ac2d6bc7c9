package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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

// results of a run, as steps leave them.
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

// TestCollect_Merges: results of one GPU and of two make one record, whichever way round: what only the second machine could run
// passed, the counts of GPUs and what neither ran are listed, and the record says which machines it is of.
func TestCollect_Merges(t *testing.T) {
	const sources = `{"ptx":"p","go":"g"}`
	one := folder(t, map[string]string{
		sourcesFile: sources, machineFile: `{"device":"GPU X","driver":"1","gpus":1}`,
		stepsFile:                `{"name":"cache","begin":5,"seconds":2,"limit_seconds":9,"result":"ok"}` + "\n",
		"cache.list":             "TestA\nTestGPUs\nTestNever\n",
		"cache.1.log":            "=== RUN   TestA\n--- PASS: TestA (1.00s)\n=== RUN   TestGPUs\n--- SKIP: TestGPUs (0.00s)\nPASS\n",
		"kernels.memcheck.1.log": "=== RUN   TestK\n--- PASS: TestK (1.00s)\nPASS\n========= ERROR SUMMARY: 0 errors\n",
		"kernels.memcheck.list":  "TestK\nTestL\n",
		"kernels.memcheck.2.log": "=== RUN   TestL\n--- PASS: TestL (1.00s)\n", // cut off: nobody knows what the tool saw
	})
	two := folder(t, map[string]string{
		sourcesFile: sources, machineFile: `{"device":"GPU X","driver":"1","gpus":2}`,
		"cache.1.log": "=== RUN   TestGPUs\n    a.go:1: gpus: 2\n--- PASS: TestGPUs (3.00s)\nPASS\n",
	})
	for _, paths := range [][]string{{one, two}, {two, one}} {
		r, err := collectRecord(paths)
		if err != nil {
			t.Fatal(err)
		}
		if r.Device != "GPU X" || r.Driver != "1" || r.GPUs != 2 || len(r.Counts) != 1 || r.Counts[0] != 2 || len(r.Runs) != 2 || r.PTX != "p" {
			t.Errorf("%+v", r)
		}
		if len(r.Tests) != 2 || r.Tests[0].Result != "pass" || r.Tests[1].Name != "TestGPUs" || r.Tests[1].Result != "pass" || r.Tests[1].Seconds != 3 {
			t.Errorf("%+v", r.Tests)
		}
		if got := strings.Join(r.Missing, " "); got != "cache.TestNever kernels.memcheck.TestL" {
			t.Errorf("missing: %s", got)
		}
		if err := r.fault(); err == nil || !strings.Contains(err.Error(), "2 tests did not run: cache.TestNever") {
			t.Errorf("fault: %v", err)
		}
		if s := r.Sanitizer; len(s) != 1 || !s[0].Clean || s[0].Tests != 1 || s[0].Summary != "ERROR SUMMARY: 0 errors" {
			t.Errorf("%+v", s)
		}
	}
	other := folder(t, map[string]string{sourcesFile: `{"ptx":"q","go":"g"}`, machineFile: `{}`})
	if _, err := collectRecord([]string{one, other}); err == nil || !strings.Contains(err.Error(), "is of other code than") {
		t.Errorf("other code: %v", err)
	}
	if _, err := collectRecord([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "has no sources.json") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestCollect_Archive: the .tar.gz of a folder is as good as the folder.
func TestCollect_Archive(t *testing.T) {
	dir := folder(t, map[string]string{
		sourcesFile: `{"ptx":"p","go":"g"}`, machineFile: `{"device":"Emulated GPU","gpus":1}`,
		"cache.1.log": "=== RUN   TestA\n--- PASS: TestA (1.00s)\nPASS\n",
	})
	path := filepath.Join(t.TempDir(), "r.tar.gz")
	if out, err := exec.Command("tar", "-C", filepath.Dir(dir), "-czf", path, filepath.Base(dir)).CombinedOutput(); err != nil {
		t.Skipf("no tar: %v: %s", err, out)
	}
	r, err := collectRecord([]string{path})
	if err != nil || len(r.Tests) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := r.failures(); err == nil || !strings.Contains(err.Error(), "must not be an emulated one") {
		t.Errorf("an emulated GPU: %v", err)
	}
	if err := os.Truncate(path, 40); err != nil {
		t.Fatal(err)
	}
	if _, err := collectRecord([]string{path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a cut archive: %v", err)
	}
}

// TestSanitized: one unclean process makes the tool unclean, and so does what it complained of before it was cut off.
func TestSanitized(t *testing.T) {
	const ok = "=== RUN   TestA\n--- PASS: TestA (1.00s)\nPASS\n========= ERROR SUMMARY: 0 errors\n"
	for want, texts := range map[string][]string{
		"ERROR SUMMARY: 0 errors":    {ok, ok},
		"ERROR SUMMARY: 3 errors":    {ok, strings.Replace(ok, "0 errors", "3 errors", 1)},
		"1 complaints, then cut off": {ok, "=== RUN   TestB\n========= Invalid __global__ read of size 4 bytes\n"},
	} {
		var logs []testLog
		for _, text := range texts {
			logs = append(logs, parseLog("kernels", "memcheck", []byte(text)))
		}
		if s := sanitized("kernels", "memcheck", logs); s.Summary != want || s.Clean != (want == "ERROR SUMMARY: 0 errors") {
			t.Errorf("%q: %+v", want, s)
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
