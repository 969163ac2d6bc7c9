package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// The service has a set of caches, each with tables of its own: one with the tables that share --gpu-memory, and one for each table that has a budget of its own, or
// that has come while the program runs. The catalog says which cache has the table of a name.

// defaultShare is the budget of a table that is added without one where --gpu-memory is a size, which the tables of the start have. leastShare is the least in bytes.
const (
	defaultShare = "5%"
	leastShare   = 1 << 20
)

// groups returns the config of each cache: of the tables that share one, then of those with a budget of their own.
func (c *Config) groups() (all []*Config) {
	shared := *c
	shared.Tables = nil
	for _, t := range c.Tables {
		if t.Budget == "" {
			shared.Tables = append(shared.Tables, t)
		} else {
			all = append(all, c.alone(t))
		}
	}
	if len(shared.Tables) > 0 {
		shared.keepIn("tables")
		all = slices.Insert(all, 0, &shared)
	}
	if len(all) > 0 { // the file itself has the rows of the first cache
		all[0].Snapshot = c.Snapshot
	}
	return all
}

// alone returns the config of a table's own cache.
func (c *Config) alone(t TableSpec) *Config {
	one := *c
	one.Tables, one.Name = []TableSpec{t}, c.Name+"."+t.name()
	switch one.leastBudget = leastShare; {
	case t.Budget != "":
		one.Budget, one.leastBudget = t.Budget, 0
	case !strings.HasSuffix(c.Budget, "%") || strings.Contains(c.Budget, ","):
		one.Budget = defaultShare
	}
	if c.Snapshot != "" {
		one.Snapshot += "." + url.PathEscape(t.name())
	}
	contents := t.name() // those of a table that takes its place are kept elsewhere
	if info, err := os.Stat(t.File); err == nil {
		contents += fmt.Sprint("\n", t.File, info.Size(), info.ModTime().UnixNano())
	}
	sum := sha256.Sum256([]byte(contents))
	one.keepIn(fmt.Sprintf("table-%x", sum[:8]))
	return &one
}

// keepIn has the memory of the config's cache in a folder of its own within that of --state.
func (c *Config) keepIn(folder string) {
	if c.State != "" {
		c.State = filepath.Join(c.State, folder)
	}
}

// unusedState returns the folder for a cache's memory: that of its config, or, if another cache of this process has it, one beside it. REQUIRES: r.changing is held.
func (r *running) unusedState(folder string) string {
	used := map[string]bool{"": false}
	for _, c := range r.configs {
		used[c.State] = c.State != ""
	}
	free := folder
	for n := 2; used[free]; n++ {
		free = fmt.Sprintf("%s.%d", folder, n)
	}
	return free
}

// dropStates gives back memory that caches of earlier processes have left and that none has taken over.
func (r *running) dropStates() {
	if r.config.State == "" {
		return
	}
	entries, _ := os.ReadDir(r.config.State)
	for _, e := range entries {
		folder := filepath.Join(r.config.State, e.Name())
		if e.IsDir() && r.unusedState(folder) == folder && (e.Name() == "tables" || strings.HasPrefix(e.Name(), "table-")) {
			statefolder.Remove(folder)
		}
	}
}

// load opens the cache of a config. restore is a snapshot of the rows to begin with, "" for none.
func (r *running) load(ctx context.Context, c *Config, restore string) (_ *cache.Cache, err error) {
	tables, err := c.openTables(ctx, func(p *pagetable.Place) { p.Logger = r.log })
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // New closes the tables unless it fails
			for _, t := range tables {
				t.Close()
			}
		}
	}()
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	o.Tables = tables
	if o.Budgets, err = c.budgets(rawBytes(tables, c.Tables)); err != nil {
		return nil, err
	}
	if len(o.Budgets) == 1 {
		o.Budget, o.Budgets = o.Budgets[0], nil
	}
	if o.Admission.Policy, err = c.policy(); err != nil {
		return nil, err
	}
	o.Telemetry = cache.TelemetryOptions{Name: c.Name, TraceRate: r.observed.TraceRate(), Logger: r.log}
	c.State = r.unusedState(c.State)
	r.unix.share(c, &o)
	o.Admission.Restore = restore
	if _, err := os.Stat(restore); errors.Is(err, os.ErrNotExist) {
		o.Admission.Restore = "" // the first start: nothing is wrong
	}
	loaded, err := newCache(ctx, o)
	if errors.Is(err, cache.ErrBudget) {
		err = fmt.Errorf("--gpu-memory (%s): %w", c.Budget, err)
	}
	return loaded, err
}

// loadAll opens the caches of the start.
func (r *running) loadAll(ctx context.Context) error {
	for _, c := range r.config.groups() {
		one, err := r.load(ctx, c, c.Snapshot)
		if err != nil {
			return errors.Join(err, r.closeCaches())
		}
		r.configs[one] = c
		r.caches = append(r.caches, one)
	}
	r.dropStates()
	var err error
	r.tables, err = catalog.New(r.caches...)
	return err
}

// closeCaches ends all caches.
func (r *running) closeCaches() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	var errs []error
	for _, c := range r.caches {
		errs = append(errs, c.Close())
	}
	r.caches = nil
	return errors.Join(errs...)
}

// fits returns an error if a further cache would lack memory.
func (c *Config) fits() error {
	p, err := c.Check()
	if err != nil {
		return err
	}
	if len(p.Problems) > 0 {
		return errors.New(strings.Join(p.Problems, "\n"))
	}
	return nil
}
