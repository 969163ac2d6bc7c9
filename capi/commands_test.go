//go:build cgo

package main

import (
	"errors"
	"testing"
)

// TestPlan_NamesKeys: errors of the commands name the keys of their JSON objects, not the flags of cachebench.
func TestPlan_NamesKeys(t *testing.T) {
	for config, want := range map[string]string{
		`{"target_hit": "110%"}`:                    "tensorcache: target_hit (110 %) must be above 0 % and at most 100 %",
		`{"target_hit": 0.5, "batch_size": -1}`:     "tensorcache: batch_size (-1) must be at least 1",
		`{"target_hit": 0.5, "warmup_batches": -7}`: "tensorcache: warmup_batches (-7) must not be negative",
	} {
		_, err := plan(config)
		if err == nil {
			t.Fatalf("%s was accepted", config)
		}
		named := keyed{err}
		if named.Error() != want || statusOf(named) != statusOf(err) || !errors.Is(named, err) {
			t.Errorf("%s: %s, want %s", config, named, want)
		}
	}
}
