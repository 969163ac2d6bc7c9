package gpu

import (
	"errors"
	"fmt"
)

// RateOptions are the options of MeasureRates. The zero value of a field is its default.
type RateOptions struct {
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
func (o *RateOptions) EnsureDefaults() {
	if o.RowBytes == 0 {
		o.RowBytes = 512
	}
	if o.Batch == 0 {
		o.Batch = 200_000
	}
	if o.TableBytes == 0 {
		o.TableBytes = 2 << 30
	}
	if o.Runs == 0 {
		o.Runs = 10
	}
}

// Validate reports all options that are out of range at once.
func (o *RateOptions) Validate() error {
	var errs []error
	if o.RowBytes < 4 || o.RowBytes%4 != 0 || int64(o.RowBytes) > o.TableBytes {
		errs = append(errs, fmt.Errorf("rates: row (%d bytes) must be a multiple of 4, at most the table's %d", o.RowBytes, o.TableBytes))
	}
	if o.Batch < 32 || o.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("rates: batch (%d) must be 32 to %d", o.Batch, maxBatch))
	}
	if o.TableBytes < 1<<20 || o.TableBytes > 1<<38 {
		errs = append(errs, fmt.Errorf("rates: table (%d bytes) must be 2^20 to 2^38", o.TableBytes))
	}
	if o.Runs < 1 || o.Runs > 10_000 {
		errs = append(errs, fmt.Errorf("rates: runs (%d) must be 1 to 10000", o.Runs))
	}
	return errors.Join(errs...)
}
