package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// ready says why the program is to get no new work although it serves: nil if it is.
func (r *running) ready() error {
	if why := r.leaving.Load(); why != nil {
		return errors.New("tensorcached: " + *why)
	}
	if err := r.snapshots.failure(); err != nil {
		return fmt.Errorf("tensorcached: snapshot: %w", err)
	}
	if most := math.Float64frombits(r.maxPressure.Load()); most > 0 {
		if p, file, err := memoryPressure(pressureFiles()); err == nil && p >= most {
			return fmt.Errorf("tensorcached: memory pressure (%.0f %% of the last 10 s, %s) must be below --max-memory-pressure (%.0f %%)", 100*p, file, 100*most)
		}
	}
	return nil
}

// leave has /readyz answer 503, for the reason given, while the program goes on serving.
func (r *running) leave(why string) { r.leaving.Store(&why) }

// pressureFiles are where Linux says how long tasks have waited for memory: of the program's control group, or else of the machine. Tests replace it.
var pressureFiles = func() []string {
	files := []string{"/proc/pressure/memory"}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return files
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			files = append([]string{filepath.Join("/sys/fs/cgroup", path, "memory.pressure")}, files...)
		}
	}
	return files
}

// memoryPressure returns the share of the last 10 s in which all tasks waited for memory ("full avg10" of Linux's pressure stall information), of the first file
// that there is.
func memoryPressure(files []string) (share float64, file string, err error) {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, full, ok := bytes.Cut(b, []byte("full avg10="))
		if _, err := fmt.Sscanf(string(full), "%g", &share); !ok || err != nil {
			return 0, file, fmt.Errorf("memory pressure: %s must have a line full avg10=", file)
		}
		return share / 100, file, nil
	}
	return 0, "", errors.New("memory pressure is not known")
}
