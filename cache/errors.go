package cache

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tensorcache/tensorcache/cache/internal/clients"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
)

var (
	// ErrClosed is returned by every call on a cache after Close, and by batches that were waiting for rows of pages
	// when Close was called. Those rows are zeroed.
	ErrClosed = read.ErrClosed
	// ErrOptions is wrapped by New's error for options out of range. The text names all of them.
	ErrOptions = errors.New("cache: bad options")
	// ErrPolicy is wrapped by New's, Refresh's and SetGPUMemory's error when the admission policy has panicked. The cache serves on.
	ErrPolicy = learn.ErrPolicy
	// ErrBudget is wrapped by New's and SetGPUMemory's error when the budget does not hold a single row.
	ErrBudget = place.ErrBudget
	// ErrTable is wrapped by the error of a call for a table index out of range, which changes nothing.
	ErrTable = errors.New("cache: table")
	// ErrRows is wrapped by the errors of Gather and Invalidate for row numbers outside the table, and of Update for row numbers beyond
	// the table's capacity. These calls change nothing. It is also wrapped by the error of Batch.Wait; those rows are zeroed then, and
	// the other rows are written.
	ErrRows = read.ErrRows
	// ErrOutput is wrapped by the errors of Gather and Enqueue for an output of the wrong size or a Stride shorter than a row, and of Update for data of the wrong
	// size. These calls change nothing.
	ErrOutput = read.ErrOutput
	// ErrDevice is wrapped by errors of devices that have failed for good. Once all have failed, every call but Close returns one.
	ErrDevice = read.ErrDevice
	// ErrCapturing is wrapped by Enqueue's error for a batch that cannot become a part of the graph that its stream captures: rows of
	// 8 KiB and more of cached tables, bags that Pooling.Bags chooses as View.Enqueue says, and more batches than an attached cache has places for. The capture goes
	// on without it.
	ErrCapturing = read.ErrCapturing
	// ErrPooling is wrapped by the errors of Gather and Enqueue for a Pool or an output type that does not fit the batch or the table. The
	// output is untouched then.
	ErrPooling = read.ErrPooling
	// ErrOwner is wrapped by Attach's error if the owner cannot be reached or refuses, and by errors of changes and questions of an attached cache
	// whose owner has ended, or to which the owner has said no for a reason without an error of its own. Also by those of Batch.Wait for a captured
	// batch that reads the rows of an owner which another one has replaced.
	ErrOwner = errors.New("cache: no owner")
	// ErrHeld is wrapped by errors of changes that wait for a client which does not let go of memory: it is stopped, or in a batch that takes very
	// long. The text names the client.
	ErrHeld = clients.ErrHeld
	// ErrCold is wrapped by errors of batches some of whose rows are in no slab and not in the host tier, and could not be read from below it. The
	// text names tier, page and cause. Those rows are zeroed, and the other rows are written. Later batches try again. Errors of New wrap it if no row of a table
	// of pages can be read, or its log of updates cannot be opened, and those of Update if that is so.
	ErrCold = read.ErrCold
	// ErrCorrupt is wrapped by the errors of Gather and Batch.Wait if a row does not decode, which is a fault of memory or of this
	// package. The output is undefined then.
	ErrCorrupt = read.ErrCorrupt
)

// optionsError lists options out of range. It matches ErrOptions in errors.Is.
type optionsError struct{ invalid []string }

// badOption is the error of one option.
func badOption(format string, args ...any) error {
	e := new(optionsError)
	e.add(format, args...)
	return e
}

func (e *optionsError) add(format string, args ...any) {
	e.invalid = append(e.invalid, fmt.Sprintf(format, args...))
}

// orNil returns the error, nil if no option has been added.
func (e *optionsError) orNil() error {
	if len(e.invalid) == 0 {
		return nil
	}
	return e
}

func (e *optionsError) Error() string { return strings.Join(e.invalid, "\n") }

func (e *optionsError) Is(target error) bool { return target == ErrOptions }
