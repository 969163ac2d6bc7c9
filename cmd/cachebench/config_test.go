package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
)

func TestConfig_EqualsFlags(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(1000*32), 1000, 32))
	config := write(t, "c.json", fmt.Appendf(nil, `{
		"features": %q, "cast": "bf16", "fanouts": [4, 3], "batch_size": 8, "batches": 5, "train_batches": 3, "gpu_memory": "20%%",
		"policy": "static-freq", "codec": "ibp4", "host_tier": "packed", "device": "host", "devices": 2, "workers": 1, "seed": 9, "verify": true, "json": true
	}`, features))
	flags := strings.Fields("--fanouts 4,3 --batch-size 8 --batches 5 --train-batches 3 --gpu-memory 20% --policy static-freq --codec ibp4 " +
		"--host-tier packed --device host --devices 2 --workers 1 --seed 9 --cast bf16 --features " + features)
	byFile, byFlags := decode[experiment.Result](t, succeed(t, "run", "--config", config)), run(t, flags...)
	check(t, "run --config", &byFile)
	if got, want := timeless(&byFile), timeless(byFlags); !reflect.DeepEqual(got, want) {
		t.Errorf("by file\n%+v\nby flags\n%+v", got, want)
	}
	// Flags override, before or after --config, also with the flag's default value and a different number of list elements.
	for _, args := range [][]string{{"--config", config, "--devices", "1", "--fanouts", "4"}, {"--fanouts", "4", "--devices", "1", "--config", config}} {
		r := run(t, args...)
		if r.Device.Count != 1 || r.Cache.BudgetBytes != byFile.Cache.BudgetBytes/2 || r.Workload.IDs >= byFile.Workload.IDs || r.Cache.Policy != "static-freq" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if out := succeed(t, "run", "--config", config, "--json=false"); !strings.Contains(out, "hit rate") {
		t.Errorf("--json=false printed %s", out)
	}
}

func TestConfig_BadInput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"unknown_key": 1}`:            `config @: unknown key "unknown_key"`,
		`{"a": 1, "b": 2}`:              `config @: unknown key "a"` + "\n" + `config @: unknown key "b"`,
		`{"train-batches": 3}`:          `config @: unknown key "train-batches": did you mean "train_batches"?`,
		`{"Batches": 3}`:                `config @: unknown key "Batches": did you mean "batches"?`,
		`{"": 3}`:                       `config @: unknown key ""`,
		`{"config": "c.json"}`:          `config @: unknown key "config"`,
		`{"help": true}`:                `config @: unknown key "help"`,
		`{"budget": "1%", "budget": 2}`: `config @: key "budget" occurs twice`,
		`[]`:                            `config @: must hold one JSON object`,
		`{"batches": "x"}`:              `config @: key "batches": --batches ("x") must be a whole number`,
		`{"batches": 1.5}`:              `config @: key "batches": --batches ("1.5") must be a whole number`,
		`{"batches": true}`:             `config @: key "batches": --batches ("true") must be a whole number`,
		`{"batches": [1]}`:              `config @: key "batches": value (1) must not be a list`,
		`{"gpu_memory": ["1%", "2%"]}`:  `--gpu-memory ("1%,2%") must be one value: a grid of several is run --sweep DIR`,
		`{"verify": "yes"}`:             `config @: key "verify": --verify ("yes") must be true or false`,
		`{"fanouts": [1, "a"]}`:         `config @: key "fanouts": --fanouts ("1,a") must be whole numbers between commas`,
		`{"batches": -1}`:               `--batches (-1) must not be negative`,
		`{"devices": 9}`:                `--devices (9) must be 1 to 8`,
		`{"policy": "mru"}`:             `unknown policy ("mru") must be one of freq, glru-2q, glru-arc, lru, static-degree, static-freq, static-optimal, static-pagerank, tinylfu`,
		`{"features": "f.npy"}`:         `--vertices and --features contradict each other`,
		`{"batches": 1`:                 `config @: must hold one complete JSON object: truncated`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			path := write(t, "c.json", []byte(text))
			refuse(t, strings.ReplaceAll(want, "@", path), "run", "--vertices", "100", "--config", path)
		})
	}
	missing := t.TempDir() + "/missing.json"
	refuse(t, "config: open "+missing+": no such file or directory", "run", "--config", missing)
}

// TestSettings_AreFlags: what a sweep notes down of a cell is what run --config takes.
func TestSettings_AreFlags(t *testing.T) {
	c := experiment.NewConfig()
	c.Link, c.GPUs, c.Rates, c.HostNodes, c.RefreshBytes, c.Cast, c.IDs = "55", "0", "r.json", "any", "1MiB", "bf16", "ids"
	c.Weighted, c.Verify, c.Cold, c.Drift, c.RefreshInterval, c.Batches, c.TrainBatches, c.DataSeed = true, true, true, 3, time.Second, 7, 0, 9
	settings := c.Settings()
	run, _, err := newRoot().Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	flags := run.Flags()
	for key, value := range settings {
		name := strings.ReplaceAll(key, "_", "-")
		if err := flags.Set(name, strings.Trim(fmt.Sprint(value), "[]")); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"link", "gpus", "rates", "host_nodes", "refresh_bytes", "refresh_interval", "batches", "train_batches", "data_seed", "cold"} {
		if settings[key] == nil {
			t.Errorf("%s is not among %v", key, settings)
		}
	}
	for _, key := range []string{"fanouts", "features", "placement"} {
		if settings[key] != nil {
			t.Errorf("%s is %v", key, settings[key])
		}
	}
}
