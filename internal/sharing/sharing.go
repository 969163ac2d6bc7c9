// Package sharing is what packages cache and serve agree on: how a server lets processes in that read the memory of a cache. It is a package of
// its own so that the public API of package cache need not show it.
package sharing

import (
	"context"
	"errors"
	"time"

	"github.com/tensorcache/tensorcache/internal/wire"
)

// ErrNotShared is returned by Open for a cache that was opened without Options.Shared.
var ErrNotShared = errors.New("cache: Options.Shared must be set for other processes to attach")

// Open returns the owner's side of a cache (*cache.Cache). A cache has one, however often it is opened. Package cache sets it.
var Open func(cache any, o Options) (Owner, error)

// Source tells the files that a table (*cache.Table) is read from from others of the same names, by paths, lengths and times of the last change; "": not known. A cache with
// Options.State takes over the table of the process before if both have the same. Package cache sets it.
var Source func(table any) string

// SetSource says that the rows of a table of a cache (*cache.Cache) are now those of another Source, for the next owner of Options.State. One that no table has, such as "dropped",
// has the table loaded anew. It does nothing for tables that are not kept, and is safe for concurrent use. After Close it returns cache.ErrClosed. Package cache sets it.
var SetSource func(cache any, table int, source string) error

// Options say what becomes of clients that hold back changes.
type Options struct {
	StoppedAfter time.Duration // how long a client may
	Evict        bool          // kill it then
}

// Owner lets processes in. It is safe for concurrent use.
type Owner interface {
	// Admit gives a process memory to map, with a board for so many lanes a device. send is called with the memory before Admit returns, and
	// later with what changes, until it returns an error. Admit closes p when the client has left, or after an error. It waits while rows of a lost device are
	// withdrawn.
	Admit(ctx context.Context, p Process, lanes int, send func(*wire.Message) error) (Client, *wire.Welcome, error)
	// Client returns the client of a number, nil if there is none.
	Client(number uint64) Client
	// ReadAbsent reads rows of a table that a client has not found in the host tier.
	ReadAbsent(ctx context.Context, table int, rows []int64) (*wire.AbsentRows, error)
	// Disconnected returns how many clients have lost their connection and may still run batches.
	Disconnected() int
	// Misses returns what the owner knows of rows that a batch of a client has missed.
	Misses(table int, rows []int64) (*wire.Misses, error)
	// Oldest returns the oldest version of the protocol whose clients can map the memory.
	Oldest() int
	// Describe describes the clients, in the order of their numbers.
	Describe() []Description
}

// Description describes a client.
type Description struct {
	Number                 uint64
	Name                   string
	Live                   bool // its batches may run
	Gathers, Lookups, Hits int64
	HoldsFor               time.Duration // how long it has held back changes, 0 unless that is too long
}

// Client is a process that reads the cache's memory. It is safe for concurrent use.
type Client interface {
	// Ready lets batches of the client begin, once it has mapped the memory that it is to read now. It says whether that is so.
	Ready() bool
	// FreeCaptures takes over what captured batches on places of a device have counted, and zeroes that, so that others can have the places. It returns an
	// error if there are no such places, or if a replay runs.
	FreeCaptures(device, from, count int) error
	// Leave forgets the client, none of whose batches runs. Only the first call has an effect.
	Leave()
	// Lost says that the client's connection has ended. A client whose process may still run is kept until that has ended, too.
	Lost()
}

// Process is a client's process. It is safe for concurrent use.
type Process interface {
	// String names it, for errors.
	String() string
	// Visible says whether the system lets the owner know when the process ends.
	Visible() bool
	// Wait returns true when the process has ended. It returns false if the process is not visible, or after Close.
	Wait() bool
	// Kill ends it.
	Kill() error
	// Close is called when the process is not asked about any more.
	Close()
}
