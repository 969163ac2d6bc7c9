package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	// Files with holes, of a table in Fortran order, which is read into memory, and of one that is not; and an edge between two vertices of many.
	fortran, plain := holes(t, "True", 1<<32, 64), holes(t, "False", 1<<32, 64)
	edge := write(t, "wide.txt", []byte("0 16000000\n"))
	for args, want := range map[string]string{
		"run --vertices 1000 --batches 1000000000000000":                                "--batches (1000000000000000) needs about 8.0 PB of memory, and",
		"run --vertices 2147483647":                                                     "--vertices (2147483647) needs about 2.7 TB of memory (",
		"run --vertices 2147483647 --capture " + out:                                    "--vertices (2147483647) needs about 2.7 TB of memory (",
		"run --explain 1 --vertices 2147483647":                                         "--vertices (2147483647) needs about 2.7 TB of memory (",
		"plan --vertices 2147483647":                                                    "--vertices (2147483647) needs about 546 GB of memory, and", // generates some rows only
		"run --sweep " + t.TempDir() + " --vertices 2147483647":                         "--vertices (2147483647) needs about 2.7 TB of memory (",
		"compress --features " + fortran:                                                "--features (" + fortran + ") needs about 1.1 TB of memory, and",
		"compress --cast bf16 --features " + plain:                                      "--features (" + plain + ") needs about 550 GB of memory, and",
		"run --features " + fortran:                                                     "--features (" + fortran + ") needs about 3.3 TB of memory (",
		"trace generate sampling --vertices 1000000000 --degree 100000 --out " + out:    "--degree (100000) needs about 400 TB of memory, and",
		"trace generate dlrm --tables 100:1:1000000 --batch-size 10000000 --out " + out: "--batch-size (10000000) needs about 180 TB of memory, and",
	} {
		_, stderr, status := cachebench(t, strings.Fields(args)...)
		if status != 1 || !strings.HasPrefix(stderr, "cachebench: "+want) || !strings.Contains(stderr, "this process may take") || !strings.HasSuffix(stderr, "lower it, or go on with --force\n") {
			t.Errorf("%s: status %d\n got %s\nwant %s", args, status, stderr, want)
		}
	}
	run(t, "--vertices", "100", "--batches", "2", "--force")
	// What is known only when the edges have been read.
	limited := func(kib int, args ...string) (stderr string, status int) {
		cmd := command(t, args...)
		sh, err := exec.LookPath("sh")
		if err != nil {
			t.Skip(err)
		}
		cmd.Path, cmd.Args = sh, slices.Concat([]string{"sh", "-c", fmt.Sprintf(`ulimit -d %d; exec "$@"`, kib), "sh"}, []string{cmd.Path}, args)
		var out bytes.Buffer
		cmd.Stderr = &out
		cmd.Run()
		return out.String(), cmd.ProcessState.ExitCode()
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(bytes.Repeat([]byte("0 1\n"), 6<<20))
	z.Close()
	many := write(t, "many.el.gz", packed.Bytes())
	for _, c := range []struct {
		kib  int
		file string
		want string
	}{
		{300_000, edge, "--graph (" + edge + ") needs about "}, // the vertices' places
		{500_000, edge, "--graph (" + edge + ") needs about "}, // the table
		{300_000, many, "--graph (" + many + ") needs about "},
	} {
		if stderr, status := limited(c.kib, "run", "--graph", c.file); status != 1 || !strings.HasPrefix(stderr, "cachebench: "+c.want) || !strings.Contains(stderr, "(RLIMIT_DATA): lower it, or go on with --force\n") {
			t.Errorf("%s with %d KiB: status %d, %s", c.file, c.kib, status, stderr)
		}
	}
}

// holes returns a file of a table of rows of float32, all of it a hole.
func holes(t *testing.T, fortran string, rows, columns int64) string {
	t.Helper()
	path := write(t, "holes.npy", rawNPY("'<f4'", fortran, fmt.Sprintf("(%d, %d)", rows, columns), nil))
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()+rows*columns*4)
	}
	if err != nil {
		t.Skip(err) // no file system for it
	}
	return path
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
		r := decode[experiment.Result](t, succeed(t, "run", "--vertices", "10", "--ids", pipe(ids, gzipped), "--gpu-memory", "50%", "--codec", "none", "--json"))
		if r.Results.Lookups != 8 {
			t.Errorf("%d lookups", r.Results.Lookups)
		}
		if text := succeed(t, "trace", "info", pipe(ids, gzipped)); !strings.Contains(text, "8 gets") {
			t.Error(text)
		}
		succeed(t, "run", "--graph", pipe("0 1\n1 2\n2 0\n", gzipped), "--batches", "2", "--train-batches", "1", "--gpu-memory", "5000", "--codec", "none")
	}
	features := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command("mkfifo", features).Run(); err != nil {
		t.Fatal(err)
	}
	refuse(t, "npy: "+features+": file (a pipe) must be a regular file, of which any part can be read: save it first", "run", "--features", features)
	// Each seed of a sweep replays them.
	if _, stderr, status := cachebench(t, "run", "--sweep", t.TempDir(), "--vertices", "10", "--ids", pipe(ids, false), "--gpu-memory", "50%", "--codec", "none", "--seeds", "2"); status != 0 {
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
	}{{nil, 4, 1}, {[]string{"--batch-size", "50"}, 2, 1}, {[]string{"--batch-size", "100"}, 1, 1}, {[]string{"--train-batches", "0"}, 4, 0}} {
		r := decode[experiment.Result](t, succeed(t, append([]string{"run", "--vertices", "10", "--ids", path, "--gpu-memory", "50%", "--codec", "none", "--json"}, c.args...)...))
		if w := r.Workload; w.Batches != c.batches || w.TrainingBatches != c.training {
			t.Errorf("%v: %d batches, %d train; want %d, %d", c.args, w.Batches, w.TrainingBatches, c.batches, c.training)
		}
	}
}
