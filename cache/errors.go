package cache

import (
	"errors"
	"strings"

	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
)

var (
	// ErrClosed is returned by every call on a cache after Close.
	ErrClosed = errors.New("cache: closed")
	// ErrOptions is what New's error is for options out of range; its text names all of them.
	ErrOptions = errors.New("cache: bad options")
	// ErrPolicy is wrapped by New's, Refresh's and SetBudget's error when the admission policy has panicked. The cache serves on.
	ErrPolicy = learn.ErrPolicy
	// ErrBudget is wrapped by New's and SetBudget's error when the budget does not hold a single row.
	ErrBudget = place.ErrBudget
	// ErrTable is wrapped by the error of every call for an index of no table, with nothing touched.
	ErrTable = errors.New("cache: table")
	// ErrRows is wrapped by Gather's and Invalidate's error for row numbers outside the table, and by Update's for those
	// beyond its capacity, with nothing touched; and by Batch.Wait's, with their rows zeroed and the others written.
	ErrRows = read.ErrRows
	// ErrOutput is wrapped by Gather's and GatherDevice's error for an output of the wrong size, which is then untouched, and
	// by Update's for data of the wrong size, of which nothing is taken.
	ErrOutput = read.ErrOutput
	// ErrDevice is wrapped by every call's error once a device has failed for good. Close still works.
	ErrDevice = read.ErrDevice
	// ErrCapturing is wrapped by GatherDevice's error for a stream that is capturing a graph: the batches of a replay
	// would share their scratch memory.
	ErrCapturing = read.ErrCapturing
	// ErrCorrupt is wrapped by Gather's and Batch.Wait's error when cached or host rows do not decode, which is a fault of memory or of
	// this package. The output's contents are then undefined.
	ErrCorrupt = read.ErrCorrupt
)

// optionsError lists options out of range. It is ErrOptions to errors.Is.
type optionsError struct{ faults []string }

func (e *optionsError) Error() string { return strings.Join(e.faults, "\n") }

func (e *optionsError) Is(target error) bool { return target == ErrOptions }
