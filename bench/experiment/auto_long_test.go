//go:build long

package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// TestLong_AutoDeliversHits runs auto, picking for this machine's processors, and every codec by hand on the default workload and real
// tables: what auto picks delivers at least 0.95 times the bytes of hits a second that the best codec does. Medians of three runs each, in
// turns; auto's are runs of what it picked, too, as the caches are the same.
func TestLong_AutoDeliversHits(t *testing.T) {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	for _, file := range []string{"", "cora.npz", "reddit.npz", "ncf_user.npy"} {
		cfg := NewConfig()
		cfg.Device, cfg.Link = "host", "none"
		if file != "" {
			cfg.Features = filepath.Join(dir, file)
			if _, err := os.Stat(cfg.Features); errors.Is(err, os.ErrNotExist) {
				t.Logf("%s is not here", file)
				continue
			}
		}
		rates := map[string][]float64{}
		names := append([]string{registry.Auto, registry.None}, registry.Concrete()...)
		picked := map[string]bool{}
		for range 3 {
			for _, name := range names {
				cfg.Codec = name
				res, err := Run(context.Background(), cfg, Quiet{})
				if err != nil {
					t.Logf("%s %s: %v", file, name, err) // not for these elements
					continue
				}
				if name == registry.Auto {
					picked[res.Cache.Codec] = true
				}
				rates[res.Cache.Codec] = append(rates[res.Cache.Codec], res.Results.HitRatio*res.Results.OutputGBPerSecond)
			}
		}
		best := ""
		for name, of := range rates {
			t.Logf("%s %s: %.3f GB of hits a second", file, name, median(of))
			if best == "" || median(of) > median(rates[best]) {
				best = name
			}
		}
		for name := range picked {
			t.Logf("%s: auto picked %s", file, name)
			if of := median(rates[name]); of < 0.95*median(rates[best]) {
				t.Errorf("%s: auto's %s delivers %.3f GB of hits a second, %s %.3f", file, name, of, best, median(rates[best]))
			}
		}
	}
}
