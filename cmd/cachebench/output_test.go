package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/internal/version"
)

// mask hides what differs from run to run or depends on the machine: numbers with their units, and widths.
func mask(s string) string {
	s = regexp.MustCompile(`\d[\d,.]*( ?(B|[kMG]B|[KMG]iB|ns|µs|ms|s|k|M|G)\b)?`).ReplaceAllString(s, "#")
	s = regexp.MustCompile(`(#m)?#(\.#)?s?`).ReplaceAllString(s, "#")
	s = regexp.MustCompile(`─+`).ReplaceAllString(s, "─")
	s = regexp.MustCompile(`host \([^)]*\)`).ReplaceAllString(s, "host (NAME)")
	return regexp.MustCompile(` +`).ReplaceAllString(s, " ")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update rewrites it):\n got\n%s\nwant\n%s", path, got, want)
	}
}

func TestRun_HumanOutput(t *testing.T) {
	t.Parallel()
	golden(t, "run.golden", mask(succeed(t, slices.Concat([]string{"run", "--verify", "--policy", "static-degree"}, small)...)))
	ids := write(t, "ids", []byte(strings.Repeat("5\n", 20000)))
	golden(t, "run-ids.golden", mask(succeed(t, "run", "--vertices", "100", "--gpu-memory", "200%", "--codec", "ibp4", "--ids", ids)))
}

func TestMismatch_IsAnError(t *testing.T) {
	v := &experiment.Verification{VerifiedRows: 10}
	if err := ended(false, v); err != nil {
		t.Error(err)
	}
	if err := ended(true, v); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	v.Mismatches = 3
	if err := ended(true, v); err == nil || err.Error() != "rows differ from their source: 3 of 10" {
		t.Errorf("got %v", err)
	}
	v.VerifiedBound = 0.01
	if err := ended(false, v); err == nil || err.Error() != "rows differ from their source: 3 of 10, by more than 0.01" {
		t.Errorf("got %v", err)
	}
}

// TestRoot_Version: it says the version of the C library and the Python package, which the header has (capi/gen).
func TestRoot_Version(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "--version"); !strings.HasPrefix(out, "cachebench version "+version.Number+" (") || !strings.Contains(out, runtime.Version()) || !strings.Contains(out, "host backend") {
		t.Error(out)
	}
}

func TestRun_Interrupt(t *testing.T) {
	measured := map[string]bool{"measuring": true, "tables": true, "printing": true} // what was measured is printed
	several := strings.Join(threeTables(t), ",")
	for name, args := range map[string][]string{
		"measuring":  {"run", "--json", "--vertices", "1000", "--batches", "100000000", "--train-batches", "1"},
		"tables":     {"run", "--json", "--features", several, "--codec", "ibp4", "--batches", "100000000", "--train-batches", "1"},
		"printing":   {"run", "--features", several, "--codec", "ibp4", "--batches", "100000000", "--train-batches", "1"},
		"training":   {"run", "--json", "--vertices", "1000", "--train-batches", "100000000"},
		"generating": {"run", "--json", "--vertices", "2000000"},
		"compress":   {"compress", "--json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(partial bool, w *experiment.WorkloadInfo, lookups int64) {
				if !partial || w.Batches < 1 || w.PlannedBatches != 100000000 || lookups != w.IDs || w.IDs < int64(w.Batches) {
					t.Errorf("partial: %v, %d lookups, %+v", partial, lookups, w)
				}
			}
			var cmd *exec.Cmd
			var stdout, stderr bytes.Buffer
			for wait := 700 * time.Millisecond; ; wait *= 3 { // to where the test's name says; a busy machine takes longer
				cmd = interruptible(t, args...)
				stdout.Reset()
				stderr.Reset()
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(wait)
				interrupt(t, cmd)
				if !measured[name] || stdout.Len() > 0 || wait > 20*time.Second {
					break
				}
			}
			if status := cmd.ProcessState.ExitCode(); status != 1 || (stdout.Len() != 0) != measured[name] || stderr.String() != "cachebench: interrupted\n" {
				t.Errorf("status %d, stdout %q, stderr %q", status, &stdout, &stderr)
			}
			switch name {
			case "measuring":
				r := decode[experiment.Result](t, stdout.String())
				check(r.Partial, &r.Workload, r.Results.Lookups)
			case "tables":
				r := decode[experiment.TablesResult](t, stdout.String())
				check(r.Partial, &r.Workload, r.Total.Lookups)
			case "printing":
				if s := stdout.String(); !strings.HasPrefix(s, "partial    interrupted after ") || strings.Count(s, "uncompressed") != 1 || strings.Contains(s, "verdict") {
					t.Error(s)
				}
			}
		})
	}
}
