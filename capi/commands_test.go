//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// TestCommands_EarlierNames: keys of the release before are those of today.
func TestCommands_EarlierNames(t *testing.T) {
	for text, want := range map[string]experiment.Config{
		`{"warmup_batches": 0}`: {},
		`{"budget": "3%"}`:      {TrainBatches: 7, Budget: "3%"},
		`{"gpu_memory": 4096}`:  {TrainBatches: 7, Budget: "4096"},
		`{"layout": "buddy"}`:   {TrainBatches: 7, Resident: experiment.Resident{Slots: "auto"}},
		`{"target": 64}`:        {TrainBatches: 7, Resident: experiment.Resident{Slots: "64"}},
		`{"layout": "buddy", "target": 64, "overflow": 0.1}`: {TrainBatches: 7, Resident: experiment.Resident{Slots: "64", MaxOverflow: 0.1}},
		`{"resident": 64}`: {TrainBatches: 7, Resident: experiment.Resident{Slots: "64"}},
	} {
		c := commandConfig{Config: experiment.Config{TrainBatches: 7}}
		if err := errors.Join(decode(text, &c), c.finish()); err != nil || c.TrainBatches != want.TrainBatches || c.Budget != want.Budget || c.Resident != want.Resident {
			t.Errorf("%s: %+v %v", text, c.Config, err)
		}
	}
	if err := (&commandConfig{Layout: "heap"}).finish(); err == nil {
		t.Error("layout heap was accepted")
	}
}

// TestPlan_NamesKeys: errors of the commands name the keys of their JSON objects, not the flags of cachebench.
func TestPlan_NamesKeys(t *testing.T) {
	for config, want := range map[string]string{
		`{"target_hit": "110%"}`:                   "tensorcache: target_hit (110 %) must be above 0 % and at most 100 %",
		`{"target_hit": 0.5, "batch_size": -1}`:    "tensorcache: batch_size (-1) must be at least 1",
		`{"target_hit": 0.5, "train_batches": -7}`: "tensorcache: train_batches (-7) must not be negative",
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
