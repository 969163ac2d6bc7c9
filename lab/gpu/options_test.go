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
		`bench: case ("hits") must be one of ` + all:                                      func(o *Options) { o.Cases = []string{"lookup", "hits"} },
		`bench: codec ("none") must be one of ` + strings.Join(registry.Concrete(), ", "): func(o *Options) { o.Codecs = []string{"rank", "none"} },
		"bench: row (10 bytes) must be a multiple of 4 from 4 to 1048572":                 func(o *Options) { o.RowBytes = []int{256, 10} },
		"bench: row (0 bytes) must be a multiple of 4 from 4 to 1048572":                  func(o *Options) { o.RowBytes = []int{0} },
		"bench: row (1048576 bytes) must be a multiple of 4 from 4 to 1048572":            func(o *Options) { o.RowBytes = []int{1 << 20} },
		"bench: table (1024 bytes) must be 1048576 to 2^40 - 1":                           func(o *Options) { o.TableBytes = 1024 },
		"bench: large table (1099511627776 bytes) must be 1048576 to 2^40 - 1":            func(o *Options) { o.LargeTableBytes = 1 << 40 },
		"bench: batch (-1) must be 1 to 16777216":                                         func(o *Options) { o.Batch = -1 },
		"bench: host threads (0) must be 1 to 1024":                                       func(o *Options) { o.HostThreads = []int{0} },
		"bench: entries (-2) must be 1 to 2147483648\nbench: runs (-3) must be 1 to 10000": func(o *Options) {
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
