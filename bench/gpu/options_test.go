package gpu

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
)

func TestOptions_Validate(t *testing.T) {
	t.Parallel()
	var o Options
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	all := strings.Join(Cases, ", ")
	for want, change := range map[string]func(*Options){
		`gpu-bench: case ("hits") must be one of ` + all:                                      func(o *Options) { o.Cases = []string{"lookup", "hits"} },
		`gpu-bench: codec ("none") must be one of ` + strings.Join(registry.Concrete(), ", "): func(o *Options) { o.Codecs = []string{"rank", "none"} },
		"gpu-bench: row (10 bytes) must be a multiple of 4 from 4 to 1048572":                 func(o *Options) { o.RowBytes = []int{256, 10} },
		"gpu-bench: row (0 bytes) must be a multiple of 4 from 4 to 1048572":                  func(o *Options) { o.RowBytes = []int{0} },
		"gpu-bench: row (1048576 bytes) must be a multiple of 4 from 4 to 1048572":            func(o *Options) { o.RowBytes = []int{1 << 20} },
		"gpu-bench: table (1024 bytes) must be 1048576 to 2^40 - 1":                           func(o *Options) { o.TableBytes = 1024 },
		"gpu-bench: large table (1099511627776 bytes) must be 1048576 to 2^40 - 1":            func(o *Options) { o.LargeTableBytes = 1 << 40 },
		"gpu-bench: batch (-1) must be 1 to 16777216":                                         func(o *Options) { o.Batch = -1 },
		"gpu-bench: lanes (4) must be 8, 16 or 32":                                            func(o *Options) { o.Lanes = []int{4} },
		"gpu-bench: host threads (0) must be 1 to 1024":                                       func(o *Options) { o.HostThreads = []int{0} },
		"gpu-bench: entries (-2) must be 1 to 2147483648\ngpu-bench: runs (-3) must be 1 to 10000": func(o *Options) {
			o.Entries, o.Runs = -2, -3
		},
	} {
		o := o
		change(&o)
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
