// Package rates measures how fast GPUs read rows of their own memory, of each other's and of the host's: the file that placement goes by.
package rates

import (
	"cmp"

	"github.com/tensorcache/tensorcache/internal/faults"
)

// Options are the options of Measure. The zero value of a field is its default.
type Options struct {
	// GPUs are the ordinals of the GPUs; default all, at most 8.
	GPUs []int
	// RowBytes is the length of a row, a multiple of 4; default 512.
	RowBytes int
	// Batch is how many rows are read at once, 32 to 2^24; default 200,000.
	Batch int
	// TableBytes is the size of the memory that each device reads rows from, on each device and on the host; default 2 GiB.
	TableBytes int64
	// Runs is how often each batch is timed; default 10.
	Runs int
}

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	o.RowBytes = cmp.Or(o.RowBytes, 512)
	o.Batch = cmp.Or(o.Batch, 200_000)
	o.TableBytes = cmp.Or(o.TableBytes, 2<<30)
	o.Runs = cmp.Or(o.Runs, 10)
}

// Validate reports all options that are out of range at once.
func (o *Options) Validate() error {
	f := faults.List{Prefix: "rates: "}
	f.If(o.RowBytes < 4 || o.RowBytes%4 != 0 || int64(o.RowBytes) > o.TableBytes, "row (%d bytes) must be a multiple of 4, at most the table's %d", o.RowBytes, o.TableBytes)
	f.If(o.Batch < 32 || o.Batch > 1<<24, "batch (%d) must be 32 to 2^24", o.Batch)
	f.If(o.TableBytes < 1<<20 || o.TableBytes > 1<<38, "table (%d bytes) must be 2^20 to 2^38", o.TableBytes)
	f.If(o.Runs < 1 || o.Runs > 10_000, "runs (%d) must be 1 to 10000", o.Runs)
	return f.Err()
}
