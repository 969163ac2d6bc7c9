package cache_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// TestNew_BadDevices: each fault is named, with its value and what it must be.
func TestNew_BadDevices(t *testing.T) {
	for want, o := range map[string]cache.Options{
		"cache: Devices.Count (9) must be 1 to 8":                                            {Devices: cache.DeviceOptions{Count: 9}},
		"cache: Devices.GPUs ([0 2]) must be as many as Devices.Count (3)":                   {Devices: cache.DeviceOptions{Count: 3, GPUs: []int{0, 2}}},
		"cache: Devices.GPUs (-1) must not be negative":                                      {Devices: cache.DeviceOptions{GPUs: []int{-1}}},
		"cache: Devices.GPUs (2) must not be named twice":                                    {Devices: cache.DeviceOptions{GPUs: []int{2, 2}}},
		"cache: Budgets (1 of them) must be one for each of the 2 devices":                   {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000}},
		"cache: Budgets (0 B for device 1) must be 1 B to 2^59 B":                            {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000, 0}},
		`cache: Devices.Placement ("hot") must be auto, partition or replicate`:              {Devices: cache.DeviceOptions{Placement: "hot"}},
		"cache: Devices.Rates: placement: rate peer (0 GB/s) must be above 0, at most 10^6":  {Devices: cache.DeviceOptions{Rates: placement.Rates{Local: 1, Host: 1}}},
		"cache: budget too small: GPUMemory of device 1 (100 B) must hold at least one slot": {Devices: cache.DeviceOptions{Count: 2}, Budgets: []int64{5000, 100}},
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

// TestNew_UnequalBudgets: every device has the whole hashmap, so a budget that is much smaller than another one limits the rows, also when the others grow.
func TestNew_UnequalBudgets(t *testing.T) {
	for name, cold := range map[string]bool{"filled": false, "cold": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			taken := make([]int64, 2) // budgeted bytes of each device
			cache.OpenHostWith(t, func(n, workers int) []device.Device {
				all := host.Open(n, workers)
				for i := range all {
					all[i] = &budgeted{all[i], &mu, &taken[i]}
				}
				return all
			})
			const rows, rowBytes = 20_000, 16
			budgets := []int64{600_000, 40_000}
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", noise(rows, rowBytes, 1), rowBytes)}, Budgets: budgets, Codec: "none",
				Devices: cache.DeviceOptions{Count: 2, Backend: "host"}, Admission: cache.AdmissionOptions{Cold: cold},
			})
			check := func() {
				t.Helper()
				for i, n := range taken {
					if n > budgets[i] {
						t.Errorf("device %d: slab, hashmap and row bits take %d B of a budget of %d B", i, n, budgets[i])
					}
				}
			}
			check()
			refresh(t, c)
			check()
			if s := stats(t, c).Tables[0]; !cold && (s.CachedRows < 1000 || s.CachedRows > 40_000/20) {
				t.Errorf("%d rows are cached", s.CachedRows)
			}
		})
	}
}

// budgeted counts the bytes that a budget pays for.
type budgeted struct {
	device.Device
	mu    *sync.Mutex
	taken *int64
}

func (d *budgeted) Alloc(bytes int64, what string) (device.Buffer, error) {
	if what == "slab" || what == "hashmap" {
		d.mu.Lock()
		defer d.mu.Unlock()
		*d.taken += bytes
	}
	return d.Device.Alloc(bytes, what)
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

// TestStats_Unallocated: what a budget exceeds the tables by is neither taken nor free, and slabs have it no sooner than rows need it.
func TestStats_Unallocated(t *testing.T) {
	const budget = 1 << 20
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", noise(1000, 64, 1), 64)}, Budget: budget, Devices: cache.DeviceOptions{Count: 2, Backend: "host"}, Codec: "none",
	})
	check := func(budget, unallocated int64) {
		t.Helper()
		s := stats(t, c)
		sum := int64(0)
		for i, d := range s.Devices {
			sum += d.UnallocatedBytes
			if d.BudgetBytes != budget || d.UnallocatedBytes+d.PayloadBytes+d.FreeBytes > budget {
				t.Errorf("device %d: %+v", i, d)
			}
		}
		// Slots of 16 bytes: up to 15 bytes of each budget are nobody's.
		if rest := s.BudgetBytes - s.MetadataBytes - s.PayloadBytes - s.FreeBytes - s.UnallocatedBytes; sum != s.UnallocatedBytes || rest < 0 || rest >= 2*16 || s.UnallocatedBytes < unallocated {
			t.Errorf("%d bytes are nobody's of %d: %d of metadata, %d of payload, %d free, %d unallocated, at least %d wanted", rest, s.BudgetBytes, s.MetadataBytes, s.PayloadBytes, s.FreeBytes, s.UnallocatedBytes, unallocated)
		}
	}
	check(budget, 2*(budget-200_000))
	if err := c.SetBudget(t.Context(), 60_000); err != nil {
		t.Fatal(err)
	}
	check(60_000, 0)
	if s := stats(t, c); s.UnallocatedBytes != 0 {
		t.Errorf("%d bytes are unallocated of a budget that rows exceed", s.UnallocatedBytes)
	}
	if err := c.SetBudget(t.Context(), 2*budget); err != nil {
		t.Fatal(err)
	}
	check(2*budget, 2*(2*budget-200_000))
}
