package main

// #include "bridge.h"
import "C"

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
)

// commandConfig is what plan and run take as JSON: an experiment.Config, whose keys are the flags of cachebench, and what its text forms are.
type commandConfig struct {
	experiment.Config
	RefreshInterval string `json:"refresh_interval"` // such as "100ms"
	Force           bool   `json:"force"`
	GPUMemory       texts  `json:"gpu_memory"` // "5%", "64MB" or bytes
	// Report asks for {"report": TEXT}, what the command prints without --json.
	Report bool  `json:"report"`
	Slots  texts `json:"resident"` // "auto" or bytes
	// Earlier names, taken for one release, as budget is of gpu_memory: of train_batches, of resident, whose layout was "buddy", and of max_overflow.
	Warmup   *int    `json:"warmup_batches"`
	Layout   string  `json:"layout"`
	Target   texts   `json:"target"`
	Overflow float64 `json:"overflow"`
}

// planConfig has the keys of plan besides.
type planConfig struct {
	commandConfig
	Policies texts `json:"policy"`
	Codecs   texts `json:"codec"`
	Targets  texts `json:"target_hit"`    // "90%" (default) or 0.9, or a list
	Learn    int64 `json:"learn"`         // row numbers that the cache learns from
	Serve    bool  `json:"serve"`         // the cache is not trained, but follows its use
	Memory   texts `json:"device_memory"` // "80GB" or bytes, all of a device; for one release also gpu_memory beside target_hit
	Check    bool  `json:"check"`
	// Lists, or one.
	Phases       texts `json:"phase"`
	HostMemories texts `json:"host_memory"`
	HostThreads  int   `json:"host_threads"`
	// What lies below host memory.
	Page          string  `json:"page"`
	Order         string  `json:"order"`
	ColdBandwidth string  `json:"cold_bandwidth"`
	ColdReads     float64 `json:"cold_reads_per_second"`
	ColdLatency   string  `json:"cold_latency"` // such as "100us"
	RowsPerSecond float64 `json:"rows_per_second"`
}

// texts is a list of texts, or one, in which there may be commas, or a number.
type texts []string

func (t *texts) UnmarshalJSON(b []byte) (err error) {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	var one string
	if len(b) > 0 && b[0] == '"' {
		err = json.Unmarshal(b, &one)
	} else {
		var n json.Number
		err = json.Unmarshal(b, &n)
		one = n.String()
	}
	*t = strings.Split(one, ",")
	return err
}

func (t texts) String() string { return strings.Join(t, ",") }

// decode reads one JSON object, all of whose keys must be known.
func decode(text string, to any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return argument("config_json: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return argument("config_json: must hold nothing after its object")
	}
	return nil
}

// finish sets the fields whose JSON form differs.
func (c *commandConfig) finish() (err error) {
	c.Config.Force = c.Force
	if c.GPUMemory != nil {
		c.Budget = c.GPUMemory.String()
	}
	if c.Warmup != nil {
		c.TrainBatches = *c.Warmup
	}
	c.Config.Slots = cmp.Or(c.Slots.String(), c.Target.String())
	if c.Layout == "buddy" {
		c.Config.Slots = cmp.Or(c.Config.Slots, experiment.AutoSlots)
	} else if c.Layout == "cached" && c.Config.Slots != "" {
		return argument("config_json: target (%s) and resident mean nothing with layout \"cached\"", c.Config.Slots)
	} else if c.Layout != "" && c.Layout != "cached" {
		return argument("config_json: layout (%q) must be left out: resident is \"auto\" or the bytes of a slot", c.Layout)
	}
	c.MaxOverflow = cmp.Or(c.MaxOverflow, c.Overflow)
	if c.RefreshInterval != "" {
		if c.Config.RefreshInterval, err = time.ParseDuration(c.RefreshInterval); err != nil {
			return argument("config_json: refresh_interval (%q) must be a time such as 100ms", c.RefreshInterval)
		}
	}
	return nil
}

func plan(text string) (any, error) {
	cfg := experiment.NewPlanConfig()
	p := planConfig{commandConfig: commandConfig{Config: cfg.Config}, HostThreads: cfg.HostThreads}
	if err := decode(text, &p); err != nil {
		return nil, err
	}
	if p.GPUMemory != nil && p.Targets != nil {
		p.Memory, p.GPUMemory = p.GPUMemory, nil
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if cfg.AtBudget = p.GPUMemory != nil; p.Targets == nil {
		p.Targets = texts{"90%"}
	}
	cfg.Config, cfg.Policies, cfg.Codecs, cfg.Check = p.Config, p.Policies, p.Codecs, p.Check
	cfg.Phases, cfg.HostThreads, cfg.Learn, cfg.Serve = p.Phases, p.HostThreads, p.Learn, p.Serve
	cfg.Tiers = experiment.TiersConfig{
		HostMemories: p.HostMemories, Page: p.Page, Order: p.Order, RowsPerSecond: p.RowsPerSecond, Cold: experiment.Drive{Bandwidth: p.ColdBandwidth, Reads: p.ColdReads},
	}
	if p.ColdLatency != "" {
		latency, err := time.ParseDuration(p.ColdLatency)
		if err != nil {
			return nil, argument("config_json: cold_latency (%q) must be a time such as 100us", p.ColdLatency)
		}
		cfg.Tiers.Cold.Latency = latency
	}
	cfg.Targets = nil
	for _, text := range p.Targets {
		number, percent := strings.CutSuffix(text, "%")
		target, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, argument("config_json: target_hit (%q) must be a hit rate such as 90%% or 0.9", text)
		}
		if percent {
			target /= 100
		}
		cfg.Targets = append(cfg.Targets, target)
	}
	if p.Memory != nil {
		bytes, err := humanize.ParseBytes(p.Memory.String())
		if err != nil || bytes > 1<<59 {
			return nil, argument("config_json: device_memory (%q) must be a size such as 80GB", p.Memory)
		}
		cfg.GPUMemory = int64(bytes)
	}
	res, err := experiment.MakePlan(context.Background(), cfg, experiment.Quiet{})
	return found(res, err, p.Report, report.Plan)
}

func bench(text string) (any, error) {
	c := commandConfig{Config: experiment.NewConfig()}
	if err := decode(text, &c); err != nil {
		return nil, err
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	if c.Several() {
		res, err := experiment.RunTables(context.Background(), c.Config, experiment.Quiet{})
		if err == nil {
			err = same(&res.Verification)
		}
		return found(res, err, c.Report, report.Tables)
	}
	res, err := experiment.Run(context.Background(), c.Config, experiment.Quiet{})
	if err == nil {
		err = same(&res.Verification)
	}
	return found(res, err, c.Report, report.Run)
}

// found returns what a command has found, or the text of it.
func found[T any](v T, err error, asText bool, print func(io.Writer, T) error) (any, error) {
	if err != nil || !asText {
		return v, err
	}
	var text strings.Builder
	err = print(&text, v)
	return map[string]string{"report": text.String()}, err
}

// same returns an error if rows differed from their source.
func same(v *experiment.Verification) error {
	if v.Mismatches > 0 {
		return failure{C.TC_ERROR_CORRUPT, fmt.Errorf("tensorcache: %d of %d rows differ from their source", v.Mismatches, v.VerifiedRows)}
	}
	return nil
}

// keyed is an error of the commands, whose text names keys where theirs names flags.
type keyed struct{ error }

var flag = regexp.MustCompile(`--[a-z][a-z-]*`)

func (k keyed) Unwrap() error { return k.error }

func (k keyed) Error() string {
	text := k.error.Error()
	if strings.HasPrefix(text, "--") {
		text = "tensorcache: " + text
	}
	return flag.ReplaceAllStringFunc(text, func(of string) string { return strings.ReplaceAll(of[2:], "-", "_") })
}

//export tcgo_plan_json
func tcgo_plan_json(config *C.char, to **C.char) status { return commandJSON(plan, config, to) }

//export tcgo_bench_json
func tcgo_bench_json(config *C.char, to **C.char) status { return commandJSON(bench, config, to) }

func commandJSON(command func(string) (any, error), config *C.char, to **C.char) status {
	return call(func() error {
		v, err := command(text(config))
		if err != nil {
			return keyed{err}
		}
		return giveJSON(v, to)
	})
}
