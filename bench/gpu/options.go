package gpu

import "io"

// Options say what to measure. The zero value of a field is its default.
type Options struct {
	// Cases to run, by name; default all.
	Cases []string
	// RowBytes are the row lengths; default 256, 400, 512, 1024, 2408, 4096.
	RowBytes []int
	// TableBytes is the size of the tables; default 2 GiB.
	TableBytes int64
	// Batch is the rows of a batch whose misses cross the link; default 200,000.
	Batch int
	// Entries is the size of the hashmap that lookup is measured on; default 20 million.
	Entries int
	// Runs is how often each is timed, after 3 runs untimed; default 10.
	Runs int
	// Log receives each result as it comes; default none.
	Log io.Writer
}

// Cases are the names of all cases.
var Cases = []string{"hit-decode", "miss-fetch", "gather-hits", "gather-misses", "gather-80", "lookup", "load", "small-batch"}

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	if len(o.Cases) == 0 {
		o.Cases = Cases
	}
	if len(o.RowBytes) == 0 {
		o.RowBytes = []int{256, 400, 512, 1024, 2408, 4096}
	}
	if o.TableBytes == 0 {
		o.TableBytes = 2 << 30
	}
	if o.Batch == 0 {
		o.Batch = 200_000
	}
	if o.Entries == 0 {
		o.Entries = 20_000_000
	}
	if o.Runs == 0 {
		o.Runs = 10
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}
