//go:build linux

package main

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestMemory_Peak bounds the memory of commands by the table's size: at most 1.3 times (plan 2.3: the table and a miniature of it), and, where there is a cache, its host tier besides.
func TestMemory_Peak(t *testing.T) {
	const rows, rowBytes, least = 200_000, 512, 1000
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, rows*rowBytes)
	for i := 0; i < len(data); i += 4 {
		binary.LittleEndian.PutUint32(data[i:], 0x3f800000|r.Uint32()&0xffff)
	}
	array := func(rows int) []byte { return npyOf(t, dtype.Float32, data[:rows*rowBytes], rows, rowBytes/4) }
	small, plain := write(t, "small.npy", array(least)), write(t, "plain.npy", array(rows))
	deflated, stored := write(t, "deflated.npz", npzOf(t, member{"features", array(rows)})), filepath.Join(t.TempDir(), "stored.npz")
	f, err := os.Create(stored)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "features.npy", Method: zip.Store})
	if err == nil {
		_, err = w.Write(array(rows))
	}
	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	fortran := write(t, "fortran.npy", rawNPY("'<f4'", "True", "(200000, 128)", data))
	ids := write(t, "ids", idLines(r.Perm(least)))
	peak := func(args ...string) float64 {
		t.Helper()
		cmd := command(t, args...)
		status := filepath.Join(t.TempDir(), "status")
		cmd.Env = append(cmd.Env, asCommand+"="+status)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v, %s", args, err, out)
		}
		_, kib, _ := strings.Cut(readFile(t, status), "VmHWM:") // ru_maxrss would begin with the test's own
		n, err := strconv.Atoi(strings.Fields(kib)[0])
		if err != nil {
			t.Fatal(err)
		}
		return float64(n) * 1024
	}
	packsWithin(t, peak, plain, float64(len(data)))
	for name, c := range map[string]struct {
		args  []string
		times float64
	}{
		"run":           {[]string{"run", "--codec", "ibp4", "--ids", ids}, 2.3},
		"run packed":    {[]string{"run", "--codec", "ibp4", "--ids", ids, "--host-tier", "packed"}, 2.3},
		"run --verify":  {[]string{"run", "--codec", "ibp4", "--ids", ids, "--verify"}, 2.3},
		"plan":          {[]string{"plan", "--codec", "none,ibp4", "--ids", ids, "--policy", "static-freq"}, 2.3},
		"compress ibp4": {[]string{"compress", "--codec", "ibp4"}, 1.3},
	} {
		if testing.Short() && (name == "run packed" || name == "run --verify") {
			continue
		}
		begin := peak(slices.Concat(c.args, []string{"--features", small})...)
		tables := [][]string{{"--features", plain}, {"--features", deflated}}
		switch {
		case testing.Short() && name != "run":
			tables = tables[:1]
		case !testing.Short() && name == "run":
			tables = append(tables, []string{"--features", stored}, []string{"--features", fortran}, []string{"--vertices", strconv.Itoa(rows)})
		}
		for _, file := range tables {
			most := c.times
			if file[0] == "--vertices" {
				most += 0.2 // for the graph
			}
			if more := peak(slices.Concat(c.args, file)...) - begin; more > most*float64(len(data)) {
				t.Errorf("%s %s: %.2f times the table, want at most %.1f", name, file, more/float64(len(data)), most)
			} else {
				t.Logf("%s %s: %.2f times the table", name, file, more/float64(len(data)))
			}
		}
	}
}

// packsWithin: packing, checking and unpacking take memory that does not grow with the table.
func packsWithin(t *testing.T, peak func(args ...string) float64, table string, bytes float64) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "table.tc")
	for _, c := range []struct {
		most float64 // MiB
		args []string
	}{
		{360, []string{"pack", table, "--out", dir, "--workers", "2", "--codec", "ibp4"}},
		{130, []string{"pack", "verify", dir}},
		{130, []string{"pack", "unpack", dir, "--out", filepath.Join(t.TempDir(), "rows.npy")}},
		{130, []string{"pack", dir, "--out", filepath.Join(t.TempDir(), "copy.tc")}},
	} {
		if took := peak(c.args...) / (1 << 20); took > c.most {
			t.Errorf("%s took %.0f MiB for a table of %.0f, want at most %.0f", c.args[0], took, bytes/(1<<20), c.most)
		} else {
			t.Logf("%s took %.0f MiB", c.args[0], took)
		}
	}
}

// TestMemory_Order: what an order takes is in files: packing an ordered table of 8 million rows, half as many with -short, takes no more memory of its own than packing it in the
// order of its rows, where order and positions would be 64 MiB, and counts 64, or row numbers that are read at once.
func TestMemory_Order(t *testing.T) {
	rows := 1 << 23
	if testing.Short() {
		rows /= 2
	}
	table := write(t, "x.npy", npyOf(t, dtype.Uint8, make([]byte, rows), rows, 1))
	blocks := make([]int64, rows) // of 4,096 rows, in reverse
	for i := range blocks {
		blocks[i] = int64(i ^ (rows - 4096))
	}
	order := write(t, "order.npy", ints(t, blocks...))
	indptr := make([]int64, rows+1)
	for i := range indptr {
		indptr[i] = int64(i)
	}
	graph := write(t, "graph.npz", npzOf(t, member{"indptr", ints(t, indptr...)}, member{"indices", ints(t, blocks...)}))
	most := func(args ...string) (kib int) {
		t.Helper()
		cmd := command(t, slices.Concat([]string{"pack", table, "--out", filepath.Join(t.TempDir(), "t.tc"), "--codec", "none", "--stage", "none", "--workers", "1"}, args)...)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%v: %v, %s", args, err, &out)
				}
				return kib
			case <-time.After(2 * time.Millisecond):
			}
			b, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
			if _, now, ok := strings.Cut(string(b), "RssAnon:"); ok {
				if n, err := strconv.Atoi(strings.Fields(now)[0]); err == nil {
					kib = max(kib, n)
				}
			}
		}
	}
	without := most()
	for name, args := range map[string][]string{"file": {"--order", order}, "degree": {"--order", "degree", "--graph", graph}, "frequency": {"--order", "frequency", "--ids", write(t, "ids", idLines([]int{5, 5, 7}))}} {
		if testing.Short() && name != "file" {
			continue
		}
		with := most(args...)
		t.Logf("--order %s: %d MiB, without %d", name, with>>10, without>>10)
		if with > without+(48<<10)*rows>>23 {
			t.Errorf("--order %s takes %d MiB, without it %d", name, with>>10, without>>10)
		}
	}
}
