package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/attach"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/transfer"
)

// AttachOptions configure an attached cache. The zero value of a field is its default.
type AttachOptions struct {
	// Name is how the owner's statistics and errors call this process. Default: the name of the program.
	Name string
	// Lanes is the most Gathers at a time on one device; more wait. The owner refuses more than it allows. Default: twice GOMAXPROCS, or what the
	// owner allows.
	Lanes int
	// Scratch is the most memory in bytes that this process allocates on each device for its Gathers, at least 1 MiB: they wait for each other's, and those that
	// need more than all of it fail. The owner refuses more than it allows. Default: what the owner allows.
	Scratch int64
	// Workers is the number of goroutines that the host backend uses for each batch. Default GOMAXPROCS.
	Workers int
	// Threads is the number of goroutines that help each GPU with misses: see HostOptions.Threads.
	Threads int
	// Wait is how long Attach tries to reach an owner that is not there yet. Default: one attempt. A refusal ends it at once.
	Wait time.Duration
	// Timeout is how long Attach, and each request to the owner later, waits for an owner that gives no sign of life: because it is stopped, or has no file
	// descriptors left. The error then wraps ErrOwner and names the owner. A request that an owner is at work on takes as long as that, also while the owner waits
	// for a drive; the context of a call that has one ends it. Stats waits for 5 s at most, and then has the last known figures. At least 100 ms. Default 10 s.
	Timeout time.Duration
	// Telemetry configures tracing, metrics and logs of this process. Telemetry.Name is Name by default.
	Telemetry TelemetryOptions
}

// clientStage is the size of a client's staging memory for shared misses, on each GPU and page-locked: a quarter of an owner's, as there may be many clients on a GPU. The
// host's part of a batch is at most 65,536 rows of 512 bytes.
const clientStage = 32 << 20

// minScratch is the least memory in bytes that a client may be bounded to on a device.
const minScratch = 1 << 20

// minTimeout is the least that an owner may be given for a sign of life: a machine under load delays it.
const minTimeout = 100 * time.Millisecond

// Attach returns the cache that another process, its owner, serves at an address "unix:PATH" (package serve); of an owner with several caches the first,
// or with "unix:PATH#TABLE" the one that has the table. Gathers read the owner's memory with
// the threads of this process, at the speed of a cache of its own. Update, Invalidate, Refresh, SetBudget, Retarget, Snapshot, Cached and Explain are requests
// to the owner, none of which waits longer than Timeout for an owner that gives no sign of life. It may still do what it was asked for when it goes on.
//
// The owner must be of the same user, and of the same release or a neighbouring one with a protocol version in common. The error wraps ErrOwner if the owner cannot be reached or refuses.
//
// This process must see (CUDA_VISIBLE_DEVICES) at least one of the owner's GPUs. Gathers run on those that it sees, and read the others' rows in their
// memory. Gathers on a GPU that it does not see return ErrDevice; its DeviceInfo has Index -1.
//
// If the owner ends, Gathers go on with the rows as they are then, and requests return errors that wrap ErrOwner. When an owner with the same
// tables is back at the address, the cache attaches to it by itself. Stats.OwnerError says whether there is one.
//
// Up to 1,024 captured batches of Enqueue can be in use on a device. Those captured before the cache has attached to another owner go on with the
// rows of the one that has ended, whose memory they hold until their graphs are destroyed; their Wait returns an error that wraps ErrOwner.
//
// A process must not use an attached cache after fork. Close does not end the owner's cache.
func Attach(ctx context.Context, address string, o AttachOptions) (*Cache, error) {
	o.Telemetry.ensureDefaults()
	all := new(optionsError)
	o.Telemetry.validate(all.add)
	if o.Lanes < 0 || o.Workers < 0 {
		all.add("cache: Lanes (%d) and Workers (%d) must not be negative", o.Lanes, o.Workers)
	}
	if o.Timeout == 0 {
		o.Timeout = wire.DefaultTimeout
	}
	if o.Timeout < minTimeout {
		all.add("cache: Timeout (%v) must be 0, for %v, or at least %v", o.Timeout, wire.DefaultTimeout, minTimeout)
	}
	if o.Scratch != 0 && o.Scratch < minScratch {
		all.add("cache: Scratch (%d B) must be 0, for what the owner allows, or at least %d", o.Scratch, minScratch)
	}
	if err := all.orNil(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = filepath.Base(os.Args[0])
	}
	if o.Telemetry.Name == "" {
		o.Telemetry.Name = o.Name
	}
	fewer := o.Lanes == 0
	if fewer {
		o.Lanes = read.MaxLanes()
	}
	t := newTuning()
	r := newRemote(address, attach.Options{
		Name: o.Name, Lanes: o.Lanes, FewerLanes: fewer, Timeout: o.Timeout, Scratch: o.Scratch, Workers: o.Workers, OpenHost: t.attachHost, Tuning: t.Tuning,
		Share: transfer.ShareOptions{Threads: o.Threads, StageBytes: clientStage, Always: t.shareAlways},
	})
	r.options.Absent = r.absentees
	first, err := r.open(ctx, o.Wait)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil, fmt.Errorf("cache: %s: %w", address, err)
		}
		return nil, r.failed(err)
	}
	c := &Cache{tuning: t, gate: newGate(), stopTraining: func() {}, owner: r, set: first.Set}
	c.opts.Telemetry = o.Telemetry
	observed := o.Telemetry.observe()
	observed.Client, observed.Owner = o.Name, r.missed
	c.watch = observe.New(observed, c.set)
	r.cache = c
	r.use(first)
	if _, err := r.machine(); err != nil { // what Stats says should the owner end
		c.watch.Log.Warn("the owner does not say its statistics", slog.Any("error", err))
	}
	c.watch.Serve(sources{c}, c.measure)
	r.tasks.Go(r.follow)
	return c, nil
}
