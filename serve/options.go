package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// Options configure a Server. The zero value of a field is its default.
type Options struct {
	// Address is "unix:PATH". The socket is created with mode 0600; one that a process left behind is replaced. It has no default.
	Address string
	// MaxClients is the most processes that are attached at a time, 1 to 1024. Default 64.
	MaxClients int
	// MaxLanes is the most batches that one client runs at a time on one device, 1 to 1024. Default 64. A client that asks for more is refused; one
	// that leaves it to the default of cache.AttachOptions has at most these.
	MaxLanes int
	// MaxScratch is the most memory in bytes that a client may allocate on each device, for its batches and what is copied there for them; at least 1 MiB.
	// Default 0: no limit. A client that asks for more is refused. A client keeps to what it is allowed by itself: its batches wait for each other's memory, and those
	// that need more than all of it fail.
	MaxScratch int64
	// StoppedAfter is how long a client may hold back changes of the cache: by a batch, or by not mapping new memory. Changes that wait longer
	// fail with an error that names the client, until it goes on or ends. At least 100 ms. Default 10 s.
	StoppedAfter time.Duration
	// EvictStopped kills a client (SIGKILL) that has held back changes for longer than StoppedAfter.
	EvictStopped bool
	// Tables are the tables of a program that has several caches, which come and go. Listen takes nil for its cache then. Default: those of Listen's cache.
	Tables *catalog.Catalog
	// Commands are what requests of clients do to the cache. A program that owns more than the cache replaces some of them.
	Commands Commands
	// Audit, if not nil, receives a record of each change of rows and of tables: which process, which table, how many rows.
	Audit *slog.Logger
	// Logger receives records of clients that come and go. Default: none.
	Logger *slog.Logger
}

// Commands are functions that requests call. The default of each acts on the cache that a client is attached to, or else on all, but that of SetBudget on
// the first.
type Commands struct {
	// Refresh runs a refresh cycle.
	Refresh func(context.Context) error
	// SetBudget sets the budget of each device in bytes, for clients that are not attached.
	SetBudget func(ctx context.Context, bytes int64) error
	// Snapshot writes a snapshot to a file; for path "", to the file that the program is configured with. By default path must not be "".
	Snapshot func(path string) error
	// Errors says what else went wrong in the background, by what it is of. Status adds it to the cache's own. By default there is nothing.
	Errors func() map[string]string
	// Drain prepares the end of the program. By default, no further client can attach, and Drain returns when the last one has left.
	Drain func(context.Context) error
	// ChangeTable changes the tables, and says what it has done. By default they cannot be changed.
	ChangeTable func(context.Context, TableChange) (string, error)
}

// TableChange is a change of an owner's tables.
type TableChange = wire.TableRequest

// ErrOptions is wrapped by Listen's error for options out of range. The text names all of them.
var ErrOptions = errors.New("serve: bad options")

const (
	maxClients = 1024
	maxLanes   = 1024
	minScratch = 1 << 20
)

// ensureDefaults sets the fields that are zero to their defaults.
func (o *Options) ensureDefaults() {
	if o.MaxClients == 0 {
		o.MaxClients = 64
	}
	if o.MaxLanes == 0 {
		o.MaxLanes = 64
	}
	if o.StoppedAfter == 0 {
		o.StoppedAfter = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// validate returns an error that names all options out of range.
func (o *Options) validate() error {
	var faults []error
	if _, err := wire.SocketPath(o.Address); err != nil {
		faults = append(faults, fmt.Errorf("serve: Address: %w", err))
	}
	if o.MaxClients < 1 || o.MaxClients > maxClients {
		faults = append(faults, fmt.Errorf("serve: MaxClients (%d) must be 1 to %d", o.MaxClients, maxClients))
	}
	if o.MaxLanes < 1 || o.MaxLanes > maxLanes {
		faults = append(faults, fmt.Errorf("serve: MaxLanes (%d) must be 1 to %d", o.MaxLanes, maxLanes))
	}
	if o.MaxScratch != 0 && o.MaxScratch < minScratch {
		faults = append(faults, fmt.Errorf("serve: MaxScratch (%d B) must be 0, for no limit, or at least %d", o.MaxScratch, minScratch))
	}
	if o.StoppedAfter < 100*time.Millisecond {
		faults = append(faults, fmt.Errorf("serve: StoppedAfter (%v) must be at least 100ms", o.StoppedAfter))
	}
	if len(faults) == 0 {
		return nil
	}
	return errors.Join(append(faults, ErrOptions)...)
}
