package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// TestMemory_AbsurdSizes: what no machine has the memory for is refused at once, with the flag, its value and the need.
func TestMemory_AbsurdSizes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says how much memory there is")
	}
	t.Parallel()
	out := filepath.Join(t.TempDir(), "x.tct")
	for args, want := range map[string]string{
		"run --vertices 1000 --batches 1000000000000000":                                "--batches (1000000000000000) needs about 8.0 PB of memory, and",
		"run --vertices 2147483647":                                                     "--vertices (2147483647) needs about 2.7 TB of memory (",
		"capture --vertices 2147483647 --out " + out:                                    "--vertices (2147483647) needs about 2.7 TB of memory (",
		"explain --rows 1 --vertices 2147483647":                                        "--vertices (2147483647) needs about 2.7 TB of memory (",
		"plan --vertices 2147483647":                                                    "--vertices (2147483647) needs about 2.7 TB of memory (",
		"sweep " + t.TempDir() + " --vertices 2147483647":                               "--vertices (2147483647) needs about 2.7 TB of memory (",
		"trace generate sampling --vertices 1000000000 --degree 100000 --out " + out:    "--degree (100000) needs about 400 TB of memory, and",
		"trace generate dlrm --tables 100:1:1000000 --batch-size 10000000 --out " + out: "--batch-size (10000000) needs about 180 TB of memory, and",
	} {
		_, stderr, status := cachebench(t, strings.Fields(args)...)
		if status != 1 || !strings.HasPrefix(stderr, "cachebench: "+want) || !strings.Contains(stderr, "this process may take") || !strings.HasSuffix(stderr, "lower it, or go on with --force\n") {
			t.Errorf("%s: status %d\n got %s\nwant %s", args, status, stderr, want)
		}
	}
	run(t, "--vertices", "100", "--batches", "2", "--force")
}

// TestIDs_Pipe: row numbers, edges and traces are read from pipes, compressed or not; tables are not, and the error says why.
func TestIDs_Pipe(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mkfifo"); err != nil {
		t.Skip(err)
	}
	pipe := func(text string, gzipped bool) string {
		path := filepath.Join(t.TempDir(), "pipe")
		if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		var content bytes.Buffer
		content.WriteString(text)
		if gzipped {
			content.Reset()
			z := gzip.NewWriter(&content)
			z.Write([]byte(text))
			z.Close()
		}
		go os.WriteFile(path, content.Bytes(), 0) // waits for the reader
		return path
	}
	const ids = "1\n2\n1\n3\n1\n2\n1\n9\n"
	for _, gzipped := range []bool{false, true} {
		r := decode[experiment.Result](t, succeed(t, "run", "--vertices", "10", "--ids", pipe(ids, gzipped), "--budget", "50%", "--codec", "none", "--json"))
		if r.Results.Lookups != 8 {
			t.Errorf("%d lookups", r.Results.Lookups)
		}
		if text := succeed(t, "trace", "info", pipe(ids, gzipped)); !strings.Contains(text, "8 gets") {
			t.Error(text)
		}
		succeed(t, "run", "--graph", pipe("0 1\n1 2\n2 0\n", gzipped), "--batches", "2", "--warmup-batches", "1", "--budget", "5000", "--codec", "none")
	}
	features := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command("mkfifo", features).Run(); err != nil {
		t.Fatal(err)
	}
	refuse(t, "npy: "+features+": file (a pipe) must be a regular file, of which any part can be read: save it first", "run", "--features", features)
	// Each seed of a sweep replays them.
	if _, stderr, status := cachebench(t, "sweep", t.TempDir(), "--vertices", "10", "--ids", pipe(ids, false), "--budget", "50%", "--codec", "none", "--seeds", "2"); status != 0 {
		t.Errorf("sweep: %s", stderr)
	}
}

// TestIDs_Few: less than four default batches are cut smaller, so that the policy has a quarter to learn from.
func TestIDs_Few(t *testing.T) {
	t.Parallel()
	path := write(t, "ids", []byte(strings.Repeat("1\n2\n1\n3\n", 25)))
	for _, c := range []struct {
		args              []string
		batches, training int
	}{{nil, 4, 1}, {[]string{"--batch-size", "50"}, 2, 1}, {[]string{"--batch-size", "100"}, 1, 1}, {[]string{"--warmup-batches", "0"}, 4, 0}} {
		r := decode[experiment.Result](t, succeed(t, append([]string{"run", "--vertices", "10", "--ids", path, "--budget", "50%", "--codec", "none", "--json"}, c.args...)...))
		if w := r.Workload; w.Batches != c.batches || w.TrainingBatches != c.training {
			t.Errorf("%v: %d batches, %d train; want %d, %d", c.args, w.Batches, w.TrainingBatches, c.batches, c.training)
		}
	}
}
