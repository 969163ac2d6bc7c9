package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestRenamed_Commands: a command by its earlier name does what it did, with a notice on standard error, and --help does not list it.
func TestRenamed_Commands(t *testing.T) {
	t.Parallel()
	help, dir := succeed(t, "--help"), t.TempDir()
	for _, c := range []struct{ args, notice, want string }{
		{"explain --rows 7 --codec ibp4", "run --explain LIST", "│   7 │"},
		{"capture --codec ibp4 --out " + dir + "/a.tct", "run --capture FILE", "hit rate"},
		{"sweep " + dir + "/s --codec none,ibp4", "run --sweep DIR", "hits 9.9 %"},
		{"compare " + dir + "/s " + dir + "/s", "report compare", "same"},
		{"verify " + dir + "/p", "pack verify", "no fault"},
		{"unpack " + dir + "/p --out " + dir + "/p.npy", "pack unpack", "p.npy"},
		{"merge " + dir + "/p", "pack merge", "no updated rows"},
	} {
		name, rest, _ := strings.Cut(c.args, " ")
		args := append([]string{name}, strings.Fields(rest)...)
		if strings.HasPrefix(c.notice, "run") {
			args = append(args, generated...)
		}
		if name == "verify" {
			succeed(t, "pack", write(t, "f.npy", npyOf(t, dtype.Float32, smooth(1000*16), 1000, 16)), "--out", dir+"/p")
		}
		stdout, stderr, status := cachebench(t, args...)
		if notice := `Command "` + name + `" is deprecated, it is cachebench ` + c.notice + " now; the old name goes with the next release\n"; status != 0 || !strings.HasPrefix(stderr, notice) || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: status %d, %q, stdout:\n%s", c.args, status, stderr, stdout)
		}
		if strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("--help lists %s", name)
		}
	}
	for command, now := range map[string]string{"gpu-bench": "bench", "drive": "drive"} {
		refuse(t, command+" measures only, and is a command of the repository's module lab now: go -C lab run . "+now, command, "--cases", "lookup")
	}
	if missing, _, status := cachebench(t, "capture"); status != 1 || missing != "" {
		t.Error("capture without --out succeeded")
	}
	if status := func() int { _, _, status := cachebench(t, "sweep"); return status }(); status != 1 {
		t.Error("sweep without a directory succeeded")
	}
}

// TestRenamed_Flags: flags by their earlier names, given on the command line or in a config file.
func TestRenamed_Flags(t *testing.T) {
	t.Parallel()
	const is = " now; the old name goes with the next release\n"
	args := []string{"run", "--json", "--vertices", "2000", "--batches", "2", "--batch-size", "16", "--codec", "ibp4"}
	stdout, stderr, status := cachebench(t, append(args, "--warmup-batches", "3", "--layout", "buddy", "--target", "512", "--overflow", "0.5")...)
	for _, notice := range []string{"--warmup-batches is --train-batches", "--layout is --resident", "--target is --resident", "--overflow is --max-overflow"} {
		if !strings.Contains(stderr, "cachebench: "+notice+is) {
			t.Errorf("no notice %q: %q", notice, stderr)
		}
	}
	if status != 0 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	if r := decode[experiment.Result](t, stdout); r.Workload.TrainingBatches != 3 || r.Resident == nil || r.Resident.TargetBytes != 512 {
		t.Errorf("%+v %+v", r.Workload, r.Resident)
	}
	stdout, stderr, _ = cachebench(t, append(args, "--config", write(t, "c.json", []byte(`{"warmup_batches": 4}`)))...)
	if r := decode[experiment.Result](t, stdout); stderr != "cachebench: --warmup-batches is --train-batches"+is || r.Workload.TrainingBatches != 4 {
		t.Errorf("%q, %+v", stderr, r.Workload)
	}
	// The command line goes before a file, whatever the names.
	file := write(t, "old.json", []byte(`{"warmup_batches": 4, "layout": "buddy", "target": "512", "overflow": 0.9}`))
	fromFile := func(flags ...string) *experiment.Result {
		stdout, stderr, status := cachebench(t, slices.Concat(args, flags, []string{"--config", file})...)
		if status != 0 {
			t.Fatalf("%v: status %d, %s", flags, status, stderr)
		}
		r := decode[experiment.Result](t, stdout)
		return &r
	}
	if r := fromFile("--train-batches", "3", "--resident", "256"); r.Workload.TrainingBatches != 3 || r.Resident == nil || r.Resident.TargetBytes != 256 {
		t.Errorf("flags beside a file: %+v %+v", r.Workload, r.Resident)
	}
	if r := fromFile(); r.Workload.TrainingBatches != 4 || r.Resident == nil || r.Resident.TargetBytes != 512 {
		t.Errorf("a file: %+v %+v", r.Workload, r.Resident)
	}
	// --budget was what --gpu-memory is, and beside --target-hit --gpu-memory was what --device-memory is.
	stdout, stderr, _ = cachebench(t, append(args, "--budget", "1MiB")...)
	if r := decode[experiment.Result](t, stdout); stderr != "cachebench: --budget is --gpu-memory"+is || r.Cache.BudgetBytes != 1<<20 {
		t.Errorf("--budget: %q, %d bytes", stderr, r.Cache.BudgetBytes)
	}
	plan := append([]string{"plan"}, args[1:]...)
	stdout, stderr, _ = cachebench(t, append(plan, "--gpu-memory", "1GiB", "--target-hit", "30%")...)
	if p := decode[experiment.PlanResult](t, stdout); stderr != "cachebench: --gpu-memory with --target-hit is --device-memory"+is || p.GPUMemory != 1<<30 || p.Target != 0.3 {
		t.Errorf("plan --gpu-memory --target-hit: %q, %+v", stderr, p)
	}
	refuse(t, "--gpu-memory and --target-hit contradict each other: one follows from the other", append(plan, "--gpu-memory", "1MiB", "--device-memory", "1GiB", "--target-hit", "30%")...)
	if _, stderr, status := cachebench(t, append(args, "--config", write(t, "heap.json", []byte(`{"layout": "heap"}`)))...); status != 1 || !strings.Contains(stderr, `key "layout"`) {
		t.Errorf("layout heap: status %d, %s", status, stderr)
	}
}
