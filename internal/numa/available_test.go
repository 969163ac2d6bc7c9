package numa

import (
	"math"
	"strings"
	"testing"
)

func TestAvailable_Parses(t *testing.T) {
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
