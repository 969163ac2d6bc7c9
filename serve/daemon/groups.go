package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/sharing"
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
		contents += "\n" + datafile.Stamp(t.File, info)
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
	used := map[string]bool{}
	for _, c := range r.configs {
		used[c.State] = true
	}
	return unused(folder, used)
}

// unused returns a folder or, if it is used, one beside it.
func unused(folder string, used map[string]bool) string {
	free := folder
	for n := 2; used[free] && folder != ""; n++ {
		free = fmt.Sprintf("%s.%d", folder, n)
	}
	return free
}

// keptTables returns the folder within --state that has each table as the config describes it, by name. Names of folders do not say so: a table that has come while the program
// ran is elsewhere than one of the start. A table that has had more capacity than the config asks for, as a replacement may have, has it in the config then.
func (c *Config) keptTables(ctx context.Context) (map[string]string, error) {
	tables, err := c.openTables(ctx, func(p *pagetable.Place) { p.Cache, p.CacheBytes = "", 0 })
	if err != nil {
		return nil, err
	}
	asked := map[statefolder.Table]*TableSpec{} // without capacity
	rows := map[string]int64{}
	var errs []error
	for i, t := range tables {
		if source := sharing.Source(&t); source != "" {
			asked[statefolder.Table{Name: t.Name(), Source: source, Codec: cmp.Or(c.Tables[i].Codec, c.Codec)}] = &c.Tables[i]
		}
		rows[t.Name()] = int64(t.Rows())
		errs = append(errs, t.Close())
	}
	kept := map[string]string{}
	for _, folder := range statefolder.Within(c.State) {
		all, err := statefolder.Peek(folder)
		if err != nil && !errors.Is(err, statefolder.ErrLost) { // it may be whole: it must not be dropped
			return nil, fmt.Errorf("--state: %w", err)
		}
		for _, t := range all {
			had := t.Capacity
			t.Capacity = 0
			if spec := asked[t]; spec != nil && kept[t.Name] == "" && had >= max(rows[t.Name], spec.Capacity) { // a second one is a replacement that was not published
				kept[t.Name] = folder
				if had > max(rows[t.Name], spec.Capacity) {
					spec.Capacity = had
				}
			}
		}
	}
	return kept, errors.Join(errs...)
}

// keptGroups is groups for the start with --state: each cache has the folder in which an earlier process has left its tables. One that has come while the program ran is in
// a folder of its own, and gets a cache of its own again.
func (r *running) keptGroups(ctx context.Context) ([]*Config, error) {
	if r.config.State == "" {
		return r.config.groups(), nil
	}
	asked := *r.config
	asked.Tables = slices.Clone(asked.Tables)
	kept, err := asked.keptTables(ctx)
	if err != nil {
		return nil, err
	}
	groups := asked.groups()
	used := map[string]bool{}
	var fresh, apart []*Config
	for _, g := range groups {
		count, best := map[string]int{}, ""
		for _, name := range g.names() {
			if f := kept[name]; f != "" && !used[f] {
				count[f]++
			}
		}
		for _, name := range g.names() { // the first of the best
			if f := kept[name]; count[f] > count[best] {
				best = f
			}
		}
		if best == "" {
			fresh = append(fresh, g)
			continue
		}
		g.State, used[best] = best, true
		g.Tables = slices.DeleteFunc(g.Tables, func(t TableSpec) bool {
			f := kept[t.name()]
			if f == "" || used[f] {
				return false
			}
			one := r.config.alone(t)
			one.State, used[f] = f, true
			apart = append(apart, one)
			return true
		})
	}
	for _, g := range fresh {
		g.State = unused(g.State, used)
		used[g.State] = true
	}
	return append(groups, apart...), nil
}

// dropStates gives back memory that caches of earlier processes have left and that none has taken over.
func (r *running) dropStates() {
	if r.config.State == "" {
		return
	}
	for _, folder := range statefolder.Within(r.config.State) {
		if name := filepath.Base(folder); r.unusedState(folder) != folder || name != "tables" && !strings.HasPrefix(name, "table-") {
			continue
		}
		names := []string{}
		tables, _ := statefolder.Peek(folder)
		for _, t := range tables {
			names = append(names, t.Name)
		}
		r.log.Warn("state: memory of an earlier process is given back, as no table is as it was there", slog.String("state", folder), slog.String("tables", strings.Join(names, ", ")))
		statefolder.Remove(folder)
	}
}

// load opens the cache of a config. restore is a snapshot of the rows to begin with, "" for none.
func (r *running) load(ctx context.Context, c *Config, restore string) (_ *cache.Cache, err error) {
	c.State = r.unusedState(c.State)
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
func (r *running) loadAll(ctx context.Context) (err error) {
	if r.config.State != "" { // before anything within is looked at
		if r.state, err = statefolder.Open(r.config.State); err != nil {
			return fmt.Errorf("--state: %w", err)
		}
	}
	groups, err := r.keptGroups(ctx)
	if err != nil {
		return err
	}
	for _, c := range groups {
		one, err := r.load(ctx, c, c.Snapshot)
		if err != nil {
			return errors.Join(err, r.closeCaches())
		}
		r.configs[one] = c
		r.caches = append(r.caches, one)
	}
	r.dropStates()
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
