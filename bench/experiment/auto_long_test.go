//go:build long

package experiment

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// TestLong_AutoIsFast runs auto, picking for this machine's processors, and every codec by hand on the default workload and real
// tables: what auto picks delivers at least 0.97 times the rows a second that the fastest codec does. Medians of three runs each, in
// turns; auto's are runs of what it picked, too, as the caches are the same. A codec that delivers less than half of the best one's at first
// runs once. Where what auto picked is not the best, or not one codec, these run eight times more, and so does what is the best
// then: one run differs from the next by a tenth.
func TestLong_AutoIsFast(t *testing.T) {
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	for _, file := range []string{"default", "cora.npz", "reddit.npz", "ncf_user.npy"} {
		t.Run(file, func(t *testing.T) {
			cfg := NewConfig()
			cfg.Device, cfg.Link = "host", "none"
			if file != "default" {
				cfg.Features = filepath.Join(dir, file)
				if _, err := os.Stat(cfg.Features); errors.Is(err, os.ErrNotExist) {
					t.Skip("it is not here")
				}
			}
			as := func(res *Result) string { // a codec by which no row shrinks keeps rows as they are
				if res.Cache.CompressionRatio == 1 {
					return registry.None
				}
				return res.Cache.Codec
			}
			rates, picked := map[string][]float64{}, map[string]bool{}
			last := map[string]float64{} // by what was asked for
			turn := func(names []string) {
				for _, name := range names {
					cfg.Codec = name
					res, err := Run(context.Background(), cfg, Quiet{})
					if err != nil {
						t.Logf("%s: %v", name, err) // not for these elements
						continue
					}
					if name == registry.Auto {
						picked[as(res)] = true
					}
					last[name] = res.Results.OutputGBPerSecond
					rates[as(res)] = append(rates[as(res)], last[name])
				}
			}
			fastest := func() (best string) {
				for name, of := range rates {
					if best == "" || Median(of) > Median(rates[best]) {
						best = name
					}
				}
				return best
			}
			names := append([]string{registry.Auto, registry.None}, registry.Concrete()...)
			turn(names)
			names = slices.DeleteFunc(names, func(name string) bool {
				return name != registry.Auto && last[name] < Median(rates[fastest()])/2
			})
			for range 2 {
				turn(names)
			}
			for confirmed := map[string]bool{}; len(picked) > 1 || !picked[fastest()]; {
				contenders := append(slices.Collect(maps.Keys(picked)), fastest())
				slices.Sort(contenders)
				contenders = slices.DeleteFunc(slices.Compact(contenders), func(name string) bool { return confirmed[name] })
				if len(contenders) == 0 {
					break
				}
				for range 8 {
					turn(contenders)
				}
				for _, name := range contenders {
					confirmed[name] = true
				}
			}
			for name, of := range rates {
				t.Logf("%s: %.3f GB/s, of %d runs", name, Median(of), len(of))
			}
			best := fastest()
			for name := range picked {
				t.Logf("auto picked %s", name)
				if of := Median(rates[name]); of < 0.97*Median(rates[best]) {
					t.Errorf("auto's %s delivers %.3f GB/s, %s %.3f", name, of, best, Median(rates[best]))
				}
			}
		})
	}
}
