package numa

import (
	"bytes"
	"fmt"
	"os"
)

// Resident returns how many bytes of the process's memory are in physical memory now, and the most that were at a time since it started.
func Resident() (now, most int64, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, fmt.Errorf("numa: memory of the process: %w", err)
	}
	for line := range bytes.Lines(text) {
		for name, to := range map[string]*int64{"VmRSS:": &now, "VmHWM:": &most} {
			if value, ok := bytes.CutPrefix(line, []byte(name)); ok {
				if _, err := fmt.Sscanf(string(value), "%d kB", to); err != nil {
					return 0, 0, fmt.Errorf("numa: memory of the process: line %q: %w", line, err)
				}
				*to <<= 10
			}
		}
	}
	if now == 0 || most == 0 {
		return 0, 0, fmt.Errorf("%w: the memory of the process is not reported", ErrRefused)
	}
	return now, most, nil
}
