package experiment

import (
	"strings"
	"testing"
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
		got, err := packWorkers(c.wanted, c.rows, c.rowBytes, c.page, c.ordered, c.force)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
