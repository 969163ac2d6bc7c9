package cache

import (
	"errors"
	"strings"
)

var (
	// ErrClosed is returned by every call on a cache after Close.
	ErrClosed = errors.New("cache: closed")
	// ErrOptions is what New's error is for options out of range; its text names all of them.
	ErrOptions = errors.New("cache: bad options")
	// ErrPolicy is wrapped by New's, Refresh's and SetBudget's error when the admission policy has panicked. The cache serves on.
	ErrPolicy = errors.New("cache: admission policy failed")
	// ErrBudget is wrapped by New's and SetBudget's error when the budget does not hold a single row.
	ErrBudget = errors.New("cache: budget too small")
	// ErrRows is wrapped by Gather's and Invalidate's error for row numbers outside the table, and by Update's for those
	// beyond its capacity, with nothing touched; and by Batch.Wait's, with their rows zeroed and the others written.
	ErrRows = errors.New("cache: row numbers out of range")
	// ErrOutput is wrapped by Gather's and GatherDevice's error for an output of the wrong size, which is then untouched, and
	// by Update's for data of the wrong size, of which nothing is taken.
	ErrOutput = errors.New("cache: wrong size")
	// ErrDevice is wrapped by every call's error once a device has failed for good. Close still works.
	ErrDevice = errors.New("cache: device failed")
	// ErrCapturing is wrapped by GatherDevice's error for a stream that is capturing a graph: the batches of a replay
	// would share their scratch memory.
	ErrCapturing = errors.New("cache: stream is capturing")
	// ErrCorrupt is wrapped by Gather's and Batch.Wait's error when cached or host rows do not decode, which is a fault of memory or of
	// this package. The output's contents are then undefined.
	ErrCorrupt = errors.New("cache: corrupt row")
)

// optionsError lists options out of range. It is ErrOptions to errors.Is.
type optionsError struct{ faults []string }

func (e *optionsError) Error() string { return strings.Join(e.faults, "\n") }

func (e *optionsError) Is(target error) bool { return target == ErrOptions }
