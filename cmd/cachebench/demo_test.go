package main

import (
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
