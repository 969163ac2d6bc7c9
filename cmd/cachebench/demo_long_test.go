//go:build long

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestLong_DemoREADME checks that README.md shows what the demonstration prints, but for the machine's name. -update rewrites it.
func TestLong_DemoREADME(t *testing.T) {
	const path = "../../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	machine := regexp.MustCompile(`on host \([^)]*\)`)
	want := succeed(t, "demo", "--device", "host")
	before, rest, found := strings.Cut(string(text), "```\n┌")
	shown, after, ended := strings.Cut("┌"+rest, "```\n")
	if !found || !ended {
		t.Fatalf("%s must have a block of code that begins with the table", path)
	}
	if machine.ReplaceAllString(shown, "") == machine.ReplaceAllString(want, "") {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+"```\n"+machine.ReplaceAllLiteralString(want, machine.FindString(shown))+"```\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s (go test -tags long ./cmd/cachebench -run README -update rewrites it) shows\n%s\nwant\n%s", path, shown, want)
}
