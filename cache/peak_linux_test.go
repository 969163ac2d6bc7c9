package cache_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestNew_PeakMemory: beside a table that is read from a file, New takes little more than the host tier, and says how much. It runs in a process
// of its own, because what is measured is the most that the process ever had.
func TestNew_PeakMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory of its own")
	}
	const rowBytes = 512
	const variable = "TENSORCACHE_PEAK_OF"
	if path := os.Getenv(variable); path != "" {
		checkPeak(t, path)
		return
	}
	for name, rows := range map[string]int{"table.npy": 1 << 20, "stored.npz": 1 << 18, "deflated.npz": 1 << 18, "table.safetensors": 1 << 18} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			writeTable(t, path, normalTable(1<<12, rowBytes/4, 1), rows>>12, rowBytes/4)
			cmd := exec.Command(os.Args[0], "-test.run=^TestNew_PeakMemory$", "-test.v")
			cmd.Env = append(os.Environ(), variable+"="+path)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func checkPeak(t *testing.T, path string) {
	for _, codec := range []cache.Codec{"none", "ibp4"} {
		table, err := cache.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		before, _, err := numa.Resident()
		if err != nil {
			t.Fatal(err)
		}
		budget := int64(table.Rows()) * int64(table.RowBytes()) / 50
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: budget, Codec: codec, Host: cache.HostOptions{NoEqualRows: true}, Devices: cache.DeviceOptions{Backend: "host"}}) // rows of the file are repeated
		_, most, err := numa.Resident()
		if err != nil {
			t.Fatal(err)
		}
		s := stats(t, c)
		took := most - before
		t.Logf("%s: %d MiB for a tier of %d MiB, %d MiB reported", codec, took>>20, s.HostBytes>>20, s.LoadPeakBytes>>20)
		if difference := s.LoadPeakBytes - took; difference < -4<<20 || difference > 4<<20 {
			t.Errorf("%s: %d bytes are reported, %d were measured", codec, s.LoadPeakBytes, took)
		}
		// The slab is host memory here. The sample that codecs are trained on, the buffers of files and the Go heap are as large for any table.
		const constant = 24 << 20
		if allowed := s.HostBytes*105/100 + budget + constant; took > allowed {
			t.Errorf("%s: New took %d MiB for a tier of %d MiB", codec, took>>20, s.HostBytes>>20)
		}
		c.Close()
	}
}
