package gpu

import (
	"math"
	"strings"
	"testing"
)

func TestHostMemory(t *testing.T) {
	t.Parallel()
	got, err := available("MemTotal:       24684092 kB\nMemFree:        24242460 kB\nMemAvailable:   24312868 kB\n")
	if err != nil || got != 24312868<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for text, want := range map[string]string{
		"MemFree: 1 kB\n": "/proc/meminfo: no MemAvailable in kB",
		"MemAvailable: 99999999999999999999999 kB\n": "/proc/meminfo: MemAvailable: strconv",
	} {
		if _, err := available(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := groupLeft("max\n", "5\n"); got != math.MaxInt64 {
		t.Errorf("a group without a limit leaves %d", got)
	}
	if got := groupLeft("1000\n", "400\n"); got != 600 {
		t.Errorf("1000 of which 400 are used leave %d", got)
	}
}

func TestModuleVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version:  gcc version 13.3.0\n": "580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n":                                   "535.54.03",
		"nothing": "",
	} {
		if got := moduleVersion(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
