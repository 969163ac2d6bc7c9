package gpu

import "regexp"

var kernelModule = regexp.MustCompile(`(?m)^NVRM version:.*? (\d+(?:\.\d+)+)\b`)

// moduleVersion reads /proc/driver/nvidia/version.
func moduleVersion(s string) string {
	if m := kernelModule.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}
