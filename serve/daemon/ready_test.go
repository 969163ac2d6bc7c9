package daemon

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunning_MemoryPressure: the program is not ready while all tasks wait for memory for a quarter of the time, or as much as is configured.
func TestRunning_MemoryPressure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.pressure")
	before := pressureFiles
	defer func() { pressureFiles = before }()
	pressureFiles = func() []string { return []string{file + ".absent", file} }
	r := new(running)
	for _, c := range []struct {
		full string
		most float64
		want string
	}{
		{"24.99", .25, ""},
		{"25.00", .25, "tensorcached: memory pressure (25 % of the last 10 s, " + file + ") must be below --max-memory-pressure (25 %)"},
		{"99.00", 0, ""},
		{"3.10", .03, "tensorcached: memory pressure (3 % of"},
		{"none", .25, ""}, // what cannot be read says nothing
	} {
		text := "some avg10=99.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=" + c.full + " avg60=0.00 avg300=0.00 total=1\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.maxPressure.Store(math.Float64bits(c.most))
		if err := r.ready(); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	os.Remove(file)
	if err := r.ready(); err != nil {
		t.Errorf("of a system that does not say: %v", err)
	}
}
