package experiment

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/scratch"
)

// TestPackWorkers: packing takes fewer goroutines, or is refused with the bytes, where a table's index and order would take more than 1 GiB.
func TestPackWorkers(t *testing.T) {
	for _, c := range []struct {
		wanted         int
		rows, rowBytes int64
		page           int
		ordered, force bool
		want           int
		says           string
	}{
		{8, 1e6, 512, 0, false, false, 8, ""},
		{8, 244_000_000, 768, 256 << 10, false, false, 8, ""},  // 187 GB
		{8, 269_000_000, 4096, 256 << 10, false, false, 8, ""}, // 1.1 TB
		{8, 269_000_000, 4096, 64 << 10, false, false, 8, ""},  // the same
		{8, 269_000_000, 4096, 4 << 10, false, false, 0, "about 4.2 GiB of memory, 4.0 GiB for the index, which larger pages (--page) make shorter: --force goes on"},
		{8, 269_000_000, 4096, 4 << 10, false, true, 8, ""},
		{8, 269_000_000, 4096, 256 << 10, true, false, 8, ""}, // ordered
		{8, 3_000_000_000, 64, 256 << 10, true, false, 2, ""},
		{2, 50_000_000, 512, 256 << 10, true, false, 2, ""},
		{8, 4_000_000_000, 512, 256 << 10, true, false, 0, "954 MiB for the order"},
	} {
		order := orderMemory{}
		if c.ordered {
			order.set = c.rows / packOrder
		}
		got, err := packWorkers(c.wanted, c.rows, c.rowBytes, c.page, order, c.force)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// TestPackConfig_Scratch: the files of an order lie where a table has room, on a drive if they can, and count as memory where they do not.
func TestPackConfig_Scratch(t *testing.T) {
	const memory = "/dev/shm"
	drive := t.TempDir()
	if !scratch.InMemory(memory) || scratch.InMemory(drive) || scratch.InMemory(diskTemp) {
		t.Skip("no /dev/shm in memory, or temporary files are not on a drive")
	}
	out := filepath.Join(drive, "not", "there")
	const redis = "redis://127.0.0.1:1/t"
	for _, c := range []struct {
		cfg    PackConfig
		temp   string
		folder string
		bytes  int64 // of files in memory, of 1000 rows
	}{
		{PackConfig{Out: out}, memory, drive, 0},
		{PackConfig{Out: memory + "/t.tc"}, drive, memory, 8000},
		{PackConfig{Out: memory + "/t.tc", Scratch: drive}, memory, drive, 0},
		{PackConfig{Out: out, Scratch: memory, Order: "degree"}, drive, memory, 12_000},
		{PackConfig{Out: redis}, drive, drive, 0},
		{PackConfig{Out: redis}, memory, diskTemp, 0},
		{PackConfig{Out: redis, Scratch: memory, Order: "frequency"}, drive, memory, 12_000},
	} {
		t.Setenv("TMPDIR", c.temp)
		c.cfg.Order = cmp.Or(c.cfg.Order, "order.npy")
		if m := c.cfg.orderMemory(1000); m.folder != c.folder || m.files != c.bytes || m.set != 250 {
			t.Errorf("%+v with TMPDIR=%s: %+v, want %d bytes in %s", c.cfg, c.temp, m, c.bytes, c.folder)
		}
	}
	if m := (&PackConfig{Out: out}).orderMemory(1000); m != (orderMemory{}) {
		t.Errorf("without an order: %+v", m)
	}
	_, err := packWorkers(8, 269_000_000, 4096, 256<<10, orderMemory{67 << 20, 2 << 30, memory}, false)
	if want := "2.1 GiB for the order, whose files are in a folder in memory (/dev/shm): --scratch takes one on a drive: --force goes on"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
