package gpu

import "testing"

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
