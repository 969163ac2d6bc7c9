package setting

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

func TestBudget(t *testing.T) {
	for text, want := range map[string]int64{"64MiB": 64 << 20, "1kB": 1000, "5%": 50, " 0.1 % ": 1, "1e-9%": 1, "1e300%": 1 << 59, "512PiB": 1 << 59} {
		if got, err := Budget(text, 1000); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"8EiB", "1EiB", "10EiB", "513PiB"} {
		if got, err := Budget(text, 1000); err == nil || err.Error() != `--gpu-memory ("`+text+`") must be at most 512PiB` {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "x", "%", "0%", "-5%", "inf%", "nan%", "1000EiB"} {
		if got, err := Budget(text, 1000); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestLists(t *testing.T) {
	if got, err := GPUs("2, 0", "auto"); err != nil || !slices.Equal(got, []int{2, 0}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"0,0", "-1", "a", "0,", "0,1,2,3,4,5,6,7,8"} {
		if got, err := GPUs(text, "auto"); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	if _, err := GPUs("all", "host"); err == nil {
		t.Error("all GPUs of the host backend")
	}
	if got, err := HostNodes("any"); err != nil || !slices.Equal(got, []int{cache.AnyNode}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Rows("--rows", "5, 1-3,7-7"); err != nil || !slices.Equal(got, []int64{5, 1, 2, 3, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "x", "3-1", "-1", "1-", "0-10000", "0-9999,1", "1-9223372036854775807"} {
		if got, err := Rows("--rows", text); err == nil {
			t.Errorf("%q: %d rows", text, len(got))
		}
	}
	for text, want := range map[string]float64{"": 0, "none": cache.NoLink, "55": 55e9} {
		if got, ok := Link(text); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"0", "-1", "x", "nan", "1e7"} {
		if _, ok := Link(text); ok {
			t.Errorf("link %q", text)
		}
	}
}
