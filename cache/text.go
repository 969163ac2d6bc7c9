package cache

import (
	"fmt"
	"strings"
)

// HitRatio returns the share of lookups that hit, 0 to 1, over all tables; 0 before the first lookup.
func (s Stats) HitRatio() float64 {
	hits, lookups := int64(0), int64(0)
	for i := range s.Tables {
		hits, lookups = hits+s.Tables[i].Hits, lookups+s.Tables[i].Lookups
	}
	return ratio(hits, lookups)
}

// HitRatio returns the share of lookups that hit, 0 to 1; 0 before the first lookup.
func (s TableStats) HitRatio() float64 { return ratio(s.Hits, s.Lookups) }

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// String returns a line for the cache and one for each table.
func (s Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.1f of %.1f MiB taken, %.1f %% hits", mebibytes(s.MetadataBytes+s.PayloadBytes+s.ResidentBytes), mebibytes(s.BudgetBytes), 100*s.HitRatio())
	for i := range s.Tables {
		t := &s.Tables[i]
		held := t.CachedRows
		if t.Resident != nil {
			held = t.Rows
		}
		fmt.Fprintf(&b, "\n%s: %d rows of %d B, %s stores %.3f of their bytes, %d in device memory; %.1f %% of %d lookups hit",
			t.Name, t.Rows, t.RowBytes, t.Codec, ratio(t.StoredBytes, t.RawBytes), held, 100*t.HitRatio(), t.Lookups)
	}
	return b.String()
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// String names the tables and the devices.
func (c *Cache) String() string {
	var tables, devices []string
	for _, t := range c.set.Tables {
		tables = append(tables, t.Name)
	}
	for i := range c.Devices() {
		devices = append(devices, c.DeviceInfo(i).Name)
	}
	return fmt.Sprintf("cache of %s on %s", strings.Join(tables, ", "), strings.Join(devices, ", "))
}
