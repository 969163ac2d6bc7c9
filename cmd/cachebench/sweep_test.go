package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
)

// grid is a sweep of 8 cells that takes no time.
var grid = slices.Concat(generated, []string{"--policy", "freq,static-degree", "--codec", "none,ibp4", "--gpu-memory", "20%", "--seeds", "2"})

// sweep runs run --sweep with the flags, which must succeed.
func sweep(t *testing.T, dir string, flags []string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, status := cachebench(t, slices.Concat([]string{"run", "--sweep", dir}, flags)...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	return stdout, stderr
}

// cells reads a sweep's cells, which must be whole.
func cells(t *testing.T, dir string) []experiment.Cell {
	t.Helper()
	c, torn, err := experiment.ReadCells(filepath.Join(dir, "cells.jsonl"))
	if err != nil || torn != 0 {
		t.Fatalf("%d bytes torn, %v", torn, err)
	}
	return c
}

// outcome is what of a cell does not depend on time.
func outcome(c *experiment.Cell) string {
	r := timeless(c.Result)
	b, err := json.Marshal(&experiment.Cell{Config: c.Config, Seed: c.Seed, Result: &r})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestSweep_Output(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	stdout, stderr := sweep(t, dir, grid)
	golden(t, "sweep.golden", mask(stdout)+mask(stderr))
	if again, stderr := sweep(t, dir, grid); again != stdout || stderr != dir+" has 8 of 8 cells already\n" {
		t.Errorf("repeated: %q\n%s", stderr, again)
	}
	// A list may be several flags.
	if _, stderr := sweep(t, dir, slices.Concat(generated, []string{"--policy", "freq", "--policy", "static-degree", "--codec", "none", "--codec", "ibp4", "--gpu-memory", "20%", "--seeds", "2"})); stderr != dir+" has 8 of 8 cells already\n" {
		t.Errorf("lists of several flags: %q", stderr)
	}
	js, _ := sweep(t, dir, append(slices.Clone(grid), "--json"))
	if got := decode[[]experiment.Cell](t, js); len(got) != 8 || got[7].Seed != 2 {
		t.Errorf("--json: %d cells", len(got))
	}
}

// TestSweep_CSV: cells.csv has a line for each cell, also after a sweep that had nothing left to do, with the figures of the cells.
func TestSweep_CSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "cells.csv")
	sweep(t, dir, grid)
	first := readFile(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	sweep(t, dir, grid)
	if readFile(t, path) != first {
		t.Error("written again, the table differs")
	}
	rows, err := csv.NewReader(strings.NewReader(first)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	all := cells(t, dir)
	if len(rows) != 1+len(all) || len(rows[0]) != 25 {
		t.Fatalf("%d lines of %d columns", len(rows), len(rows[0]))
	}
	for i, c := range all {
		for name, want := range map[string]any{
			"policy": c.Config["policy"], "budget": c.Config["budget"], "seed": c.Seed, "chosen_codec": c.Result.Cache.Codec, "hits": c.Result.Results.Hits,
			"batch_latency_ms_p99": c.Result.Results.BatchLatency.P99, "uncompressed_host_bytes_moved": c.Result.Uncompressed.HostBytesMoved, "mismatches": 0,
		} {
			if got := rows[i+1][slices.Index(rows[0], name)]; got != fmt.Sprint(want) {
				t.Errorf("cell %d: %s is %s, want %v", i, name, got, want)
			}
		}
		if slices.Contains(rows[i+1], "") {
			t.Errorf("cell %d lacks a value: %q", i, rows[i+1])
		}
	}
}

// TestSweep_CellsAreRuns: a cell's config makes run measure the same.
func TestSweep_CellsAreRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sweep(t, dir, append(slices.Clone(grid), "--verify", "--drift", "3"))
	all := cells(t, dir)
	if len(all) != 8 {
		t.Fatalf("%d cells", len(all))
	}
	for _, i := range []int{1, 6} { // of both seeds
		c := &all[i]
		config, err := json.Marshal(c.Config)
		if err != nil {
			t.Fatal(err)
		}
		stdout, _, _ := cachebench(t, "run", "--json", "--config", write(t, "cell.json", config)) // with a notice: cells keep gpu_memory by its earlier name
		res := decode[experiment.Result](t, stdout)
		res.Online.AdmittedAge, c.Result.Online.AdmittedAge = 0, 0
		check(t, c.Point().String(), c.Result)
		if a, b := outcome(c), outcome(&experiment.Cell{Config: c.Config, Seed: c.Seed, Result: &res}); a != b {
			t.Errorf("run of cell %d:\n got %s\nwant %s", i, b, a)
		}
	}
	if all[0].Result.Results.Hits == all[4].Result.Results.Hits {
		t.Error("both seeds have the same hits")
	}
}

// TestSweep_Resumes after an interrupt at any byte of the file.
func TestSweep_Resumes(t *testing.T) {
	t.Parallel()
	whole := t.TempDir()
	table, _ := sweep(t, whole, grid)
	want := cells(t, whole)
	lines, err := os.ReadFile(filepath.Join(whole, "cells.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.IndexByte(lines, '\n') + 1
	third := second + bytes.IndexByte(lines[second:], '\n') + 1
	for name, keep := range map[string]int{"nothing": 0, "lines": third, "half": second + (third-second)/2, "no-end": third - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			b, err := os.ReadFile(filepath.Join(whole, "sweep.json"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "sweep.json"), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "cells.jsonl")
			if err := os.WriteFile(path, lines[:keep], 0o644); err != nil {
				t.Fatal(err)
			}
			stdout, stderr := sweep(t, dir, grid)
			kept := bytes.Count(lines[:keep], []byte{'\n'})
			torn := keep - bytes.LastIndexByte(lines[:keep], '\n') - 1
			if notice := strconv.Itoa(torn) + " bytes of an unfinished last line are removed"; strings.Contains(stderr, notice) != (torn > 0) {
				t.Errorf("%d bytes torn: %s", torn, stderr)
			}
			if has := dir + " has " + strconv.Itoa(kept) + " of 8 cells already\n"; strings.Contains(stderr, has) != (kept > 0) {
				t.Errorf("want %q in %s", has, stderr)
			}
			if mask(stdout) != mask(table) {
				t.Errorf("got %s want %s", stdout, table)
			}
			got := cells(t, dir)
			if len(got) != len(want) {
				t.Fatalf("%d cells", len(got))
			}
			for i := range want {
				if a, b := outcome(&got[i]), outcome(&want[i]); a != b {
					t.Errorf("cell %d: got %s\nwant %s", i, a, b)
				}
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, lines[:keep-torn]) {
				t.Errorf("finished lines have changed (%v)", err)
			}
		})
	}
}

func TestSweep_Interrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags := []string{"--vertices", "5000", "--batches", "200", "--train-batches", "1", "--policy", "freq,lru,static-freq,glru-2q,glru-arc", "--codec", "ibp4", "--seeds", "1000"}
	cmd := interruptible(t, slices.Concat([]string{"run", "--sweep", dir}, flags)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cells.jsonl")
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if b, _ := os.ReadFile(path); bytes.Count(b, []byte{'\n'}) >= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no cells: %s", stderr.String())
		}
	}
	if _, second, status := cachebench(t, slices.Concat([]string{"run", "--sweep", dir}, flags)...); status != 1 || !strings.Contains(second, dir+" is in use by another sweep") {
		t.Errorf("a second sweep beside: status %d, %s", status, second)
	}
	interrupt(t, cmd)
	all, _, err := experiment.ReadCells(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "cachebench: interrupted; " + strconv.Itoa(len(all)) + " of 5000 cells are kept in " + dir + ", and the same command continues\n"
	if status := cmd.ProcessState.ExitCode(); status != 1 || stdout.Len() != 0 || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("status %d, stdout %q, stderr %q must end in %q", status, &stdout, &stderr, want)
	}
}

func TestSweep_RefusesAnotherSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	features := filepath.Join(dir, "f.npy")
	if err := os.WriteFile(features, npyOf(t, dtype.Float32, smooth(8000), 1000, 8), 0o644); err != nil {
		t.Fatal(err)
	}
	base := []string{"--features", features, "--batches", "2", "--train-batches", "1", "--batch-size", "4", "--gpu-memory", "20%"}
	sweep(t, filepath.Join(dir, "s"), base)
	first := slices.Concat([]string{"run", "--sweep", filepath.Join(dir, "s")}, base)
	holds := "sweep: " + filepath.Join(dir, "s") + " holds another sweep: "
	refuse(t, holds+"--gpu-memory is 20% there, 20%,30% here; --codec is auto there, none here; --cold is the default there, true here; --refresh-churn is the default there, 0.25 here; --sample-rate is the default there, 1 here",
		append(slices.Clone(first), "--gpu-memory", "30%", "--codec", "none", "--cold")...)
	refuse(t, holds+"--seeds is 1 there, 2 here", append(slices.Clone(first), "--seeds", "2")...)
	if err := os.WriteFile(features, npyOf(t, dtype.Float32, smooth(16000), 2000, 8), 0o644); err != nil {
		t.Fatal(err)
	}
	// Finished sweeps need no data, so one cell has to be missing.
	path := filepath.Join(dir, "s", "cells.jsonl")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := cachebench(t, first...); status != 1 || !strings.Contains(stderr, holds+"the checksum of table, graph and row numbers is ") {
		t.Errorf("changed table: status %d, %s", status, stderr)
	}
	if err := os.WriteFile(path, []byte("{}\n{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuse(t, "sweep: "+path+`:1: byte 0: must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup`, first...)
	if err := os.Remove(filepath.Join(dir, "s", "sweep.json")); err != nil {
		t.Fatal(err)
	}
	refuse(t, "sweep: "+filepath.Join(dir, "s")+" has cells but no sweep.json that says of what", first...)
	if err := os.WriteFile(filepath.Join(dir, "s", "sweep.json"), []byte(`{"budget`), 0o644); err != nil {
		t.Fatal(err)
	}
	refuse(t, "sweep: "+filepath.Join(dir, "s", "sweep.json")+": must hold one JSON object: unexpected EOF", first...)
}

func TestSweep_BadInput(t *testing.T) {
	t.Parallel()
	file := write(t, "file", nil)
	for _, c := range []struct{ flags, want string }{
		{"--sweep=", `--sweep ("") must not be empty: leave it out`},
		{"--sweep DIR --seeds 0", "--seeds (0) must be at least 1"},
		{"--sweep DIR --seed 0 --seeds 2", "--seed (0) must be at least 1 with --seeds (2)"},
		{"--sweep DIR --codec none,none", "--codec (none,none) must not have a value twice: none"},
		{"--sweep DIR --policy mru,freq --codec zip,none --gpu-memory 1%,0", "--gpu-memory (\"0\") must be a positive percentage of the table or a size such as 64MiB"},
		{"--sweep DIR --policy freq,static-optimal --cold", "--cold and --policy static-optimal contradict each other: it learns from what is measured, beforehand"},
		{"--sweep FILE", "sweep: mkdir FILE: not a directory"},
		{"--sweep DIR --vertices 10 --features x", "--vertices and --features contradict each other"},
		{"--sweep DIR --vertices 1000 --batches 2 --train-batches 1 --codec none --gpu-memory 100,20%", "sweep: cell freq, 100, none, inplace, seed 1: --gpu-memory (100): cache: budget too small: GPUMemory (100 B) must hold at least one slot (512 B) and its metadata: 832 B in all"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			files := strings.NewReplacer("FILE", file, "DIR", t.TempDir())
			stdout, stderr, status := cachebench(t, append([]string{"run"}, strings.Fields(files.Replace(c.flags))...)...)
			if status != 1 || stdout != "" || !strings.Contains(stderr, files.Replace(c.want)) {
				t.Errorf("status %d, stdout %q, stderr %q must have %q", status, stdout, stderr, c.want)
			}
		})
	}
}
