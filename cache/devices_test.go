package cache_test

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// TestNew_BadDevices: each fault is named, with its value and what it must be.
func TestNew_BadDevices(t *testing.T) {
	for want, o := range map[string]cache.Options{
		"cache: Devices.Count (9) must be 1 to 8":                                           {Devices: cache.DeviceOptions{Count: 9}},
		"cache: Devices.GPUs ([0 2]) must be as many as Devices.Count (3)":                  {Devices: cache.DeviceOptions{Count: 3, GPUs: []int{0, 2}}},
		"cache: Devices.GPUs (-1) must not be negative":                                     {Devices: cache.DeviceOptions{GPUs: []int{-1}}},
		"cache: Devices.GPUs (2) must not be named twice":                                   {Devices: cache.DeviceOptions{GPUs: []int{2, 2}}},
		"cache: Budgets (1 of them) must be one for each of the 2 devices":                  {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000}},
		"cache: Budgets (0 B for device 1) must be 1 B to 2^59 B":                           {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000, 0}},
		`cache: Devices.Placement ("hot") must be auto, partition or replicate`:             {Devices: cache.DeviceOptions{Placement: "hot"}},
		"cache: Devices.Rates: placement: rate peer (0 GB/s) must be above 0, at most 10^6": {Devices: cache.DeviceOptions{Rates: placement.Rates{Local: 1, Host: 1}}},
		"cache: budget too small: Budget of device 1 (100 B) must hold at least one slot":   {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000, 100}},
	} {
		o.Tables, o.Devices.Backend = []cache.Table{fromBytes(t, "x", normalTable(50, 8, 1), 32)}, "host"
		if o.Budget == 0 && len(o.Budgets) == 0 {
			o.Budget = 5000
		}
		c, err := cache.New(o)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestNew_Budgets: each device's slab fills its own budget, and rows are divided accordingly.
func TestNew_Budgets(t *testing.T) {
	budgets := []int64{90_000, 45_000, 65_000}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", noise(4000, 64, 1), 64)}, Budgets: budgets, Devices: cache.DeviceOptions{Count: 3, Backend: "host"}, Codec: "none",
	})
	s := stats(t, c)
	if s.BudgetBytes != 200_000 || s.MetadataBytes+s.PayloadBytes > s.BudgetBytes {
		t.Errorf("%d bytes of metadata and %d of payload, of %d", s.MetadataBytes, s.PayloadBytes, s.BudgetBytes)
	}
	for i, d := range s.Devices {
		if d.BudgetBytes != budgets[i] || d.PayloadBytes > budgets[i] || float64(d.FreeBytes) > 0.15*float64(d.PayloadBytes) {
			t.Errorf("device %d: %+v", i, d)
		}
	}
}
