package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

func TestDemo_Output(t *testing.T) {
	t.Parallel()
	small := []string{"demo", "--device", "host", "--scale", "50"}
	text := succeed(t, small...)
	golden(t, "demo.golden", mask(text))
	d := decode[experiment.DemoResult](t, succeed(t, append(small, "--json")...))
	if len(d.Tables) != 3 {
		t.Fatalf("%d tables, want 3", len(d.Tables))
	}
	for _, table := range d.Tables {
		if table.Name == "" || table.Lookups == "" || table.Budget == "" || table.Result.PredictedGPU == nil || !strings.Contains(text, table.Name) {
			t.Errorf("%+v", table)
		}
	}
}

func TestDemo_BadFlags(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--device other": "unknown device (\"other\") must be one of auto, host, cuda",
		"--workers -1":   "--workers (-1) must not be negative",
		"--scale 0":      "--scale (0) must be 1 to 100",
		"--scale 101":    "--scale (101) must be 1 to 100",
	} {
		refuse(t, want, append([]string{"demo"}, strings.Fields(flags)...)...)
	}
}

// TestDemo_README checks that README.md shows what the demonstration prints, but for the machine's name. -update rewrites it.
func TestDemo_README(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
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
	t.Errorf("%s (go test ./cmd/cachebench -run README -update rewrites it) shows\n%s\nwant\n%s", path, shown, want)
}
