package daemon

import (
	"context"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// attachments are what --listen serves: processes of this machine.
type attachments struct{ server *serve.Server }

// share has the cache use memory that other processes can map, if any can attach, or is to outlive this one.
func (a *attachments) share(c *Config, o *cache.Options) {
	o.Shared, o.State = c.Listen != "" || c.State != "", c.State
}

// checkListen says what is wrong with --listen and what belongs to it.
func (c *Config) checkListen() error {
	var f faults.List
	if _, err := wire.SocketPath(c.Listen); err != nil {
		f.Addf("--listen: %s", strings.TrimPrefix(err.Error(), "wire: "))
	}
	f.If(c.MaxAttached < 1 || c.MaxAttached > 1024, "--max-attached (%d) must be 1 to 1024", c.MaxAttached)
	f.If(c.MaxLanes < 1 || c.MaxLanes > 1024, "--max-lanes (%d) must be 1 to 1024", c.MaxLanes)
	scratch, err := c.maxScratch()
	f.Add(err)
	f.If(err == nil && scratch != 0 && scratch < 1<<20, "--max-scratch (%s) must be at least 1MiB", c.MaxScratch)
	f.If(c.StoppedAfter < 100*time.Millisecond, "--stopped-after (%v) must be at least 100ms", c.StoppedAfter)
	return f.Err()
}

// maxScratch returns --max-scratch in bytes, 0 for no limit.
func (c *Config) maxScratch() (int64, error) {
	if c.MaxScratch == "" {
		return 0, nil
	}
	return setting.Bytes("--max-scratch", c.MaxScratch)
}

// free returns an error if --listen cannot be served.
func (a *attachments) free(c *Config) error {
	if c.Listen == "" {
		return nil
	}
	return serve.Free(c.Listen)
}

// listen begins to serve --listen.
func (a *attachments) listen(r *running) (err error) {
	c := r.config
	if c.Listen == "" {
		return nil
	}
	scratch, err := c.maxScratch()
	if err != nil {
		return err
	}
	a.server, err = serve.Listen(nil, serve.Options{
		Tables: r.tables,

		Address: c.Listen, MaxClients: c.MaxAttached, MaxLanes: c.MaxLanes, MaxScratch: scratch, StoppedAfter: c.StoppedAfter, EvictStopped: c.EvictStopped, Logger: r.log, Audit: r.audit,
		Commands: serve.Commands{SetBudget: r.budgetCommand, Snapshot: r.snapshot, Errors: r.errors, Drain: r.drainCommand, ChangeTable: r.changeTable},
	})
	return err
}

// drainCommand is the command drain: the program says that it is not ready, and waits for the processes that are attached. It ends by a signal.
func (r *running) drainCommand(ctx context.Context) error {
	r.leave("draining")
	return r.unix.server.Drain(ctx)
}

// finish waits for changes by attached processes, which go on reading by themselves.
func (a *attachments) finish(ctx context.Context) error {
	if a.server == nil {
		return nil
	}
	return a.server.Finish(ctx)
}

// readers names the processes that read a cache.
func (a *attachments) readers(c *cache.Cache) []string {
	if a.server == nil {
		return nil
	}
	return a.server.Readers(c)
}

// holding returns how long each attached process has held back changes, in seconds; 0 unless that is too long.
func (a *attachments) holding() (all []float64) {
	if a.server != nil {
		for _, c := range a.server.Clients() {
			all = append(all, c.HoldsSeconds)
		}
	}
	return all
}

// retire ends attachments to a cache that is no longer served. With follow it waits until the processes are attached to the cache that has taken its place.
func (a *attachments) retire(ctx context.Context, c *cache.Cache, follow bool) error {
	if a.server == nil {
		return nil
	}
	defer a.server.Forget(c)
	a.server.Detach(c)
	if !follow {
		return nil
	}
	return a.server.Left(ctx, c)
}

func (a *attachments) close() error {
	if a.server == nil {
		return nil
	}
	return a.server.Close()
}

// status returns what the server says of the tables and its clients. It is false if there is no server.
func (a *attachments) status() (s *serve.Status, any bool, err error) {
	if a.server == nil {
		return nil, false, nil
	}
	s, err = a.server.Status()
	return s, true, err
}
