package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/kept"
	"github.com/tensorcache/tensorcache/internal/pagetable"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/serve/catalog"
	"github.com/tensorcache/tensorcache/serve/resp"
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
			kept.Remove(folder)
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

// changeTable is the command table of `tensorcached`.
func (r *running) changeTable(ctx context.Context, change serve.TableChange) (string, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	spec := TableSpec{Name: change.Table}
	if change.Change != "drop" || strings.Contains(change.Table, "=") {
		var err error
		if spec, err = parseTable(change.Table); err != nil {
			return "", fmt.Errorf("table: %w", err)
		}
	}
	if spec.File != "" && !filepath.IsAbs(spec.File) && !strings.Contains(spec.File, "://") && filepath.IsAbs(change.Folder) {
		spec.File = filepath.Join(change.Folder, spec.File)
	}
	said, err := r.applyLocked(ctx, tableChange{change.Change, spec, change.InPlace, change.Force})
	if err != nil {
		r.log.Error("tables not changed", slog.String("change", change.Change), slog.String("table", spec.name()), slog.Any("error", err))
	}
	return said, err
}

// tableChange adds, replaces or drops a table.
type tableChange struct {
	change         string
	spec           TableSpec
	inPlace, force bool
}

// prepared is a change that needs nothing more to be published: a cache that is to hold a table, or a table that is to be dropped or rewritten.
type prepared struct {
	tableChange
	next   *cache.Cache   // nil for drop and in place
	config *Config        // of next
	rows   tablefile.File // in place: what the rows are to be
	was    *catalog.Table // nil for add
}

// applyLocked makes changes, all or none: what can fail is done before the first one is published, but for rows that are replaced in place. It returns what it
// has done. REQUIRES: r.changing is held.
func (r *running) applyLocked(ctx context.Context, changes ...tableChange) (said string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.steady, cancel)()
	var all []*prepared
	defer func() {
		if err == nil {
			r.changesMade.Add(int64(len(all)))
		} else {
			r.changesFailed.Add(1)
		}
		for _, p := range all {
			if p.rows != nil {
				p.rows.Close()
			}
			if err != nil && p.next != nil && !slices.Contains(r.caches, p.next) {
				err = errors.Join(err, p.next.Close())
				kept.Remove(p.config.State)
			}
		}
	}()
	left := len(r.tables.View().Tables)
	for _, c := range changes {
		p, err := r.prepareLocked(ctx, c)
		if err != nil {
			return "", err
		}
		all = append(all, p)
		switch c.change {
		case "add":
			left++
		case "drop":
			left--
		}
	}
	if left < 1 {
		return "", errors.New("table: the last table must not be dropped: replace it, or end tensorcached")
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	slices.SortStableFunc(all, func(a, b *prepared) int { // what can fail half-way comes first
		if (a.rows != nil) == (b.rows != nil) {
			return 0
		} else if a.rows != nil {
			return -1
		}
		return 1
	})
	var lines []string
	for _, p := range all {
		text, err := r.publishLocked(ctx, p)
		if err != nil {
			return "", err
		}
		r.log.Info("tables changed", slog.String("change", p.change), slog.String("table", p.spec.name()), slog.String("result", text))
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n"), nil
}

// prepareLocked does all of a change that can fail. REQUIRES: r.changing is held.
func (r *running) prepareLocked(ctx context.Context, c tableChange) (*prepared, error) {
	name, v := c.spec.name(), r.tables.View()
	listed := slices.Contains(v.Names(), name)
	p := &prepared{tableChange: c}
	switch {
	case c.change != "add" && c.change != "replace" && c.change != "drop":
		return nil, fmt.Errorf("table: change (%q) must be add, replace or drop", c.change)
	case c.change == "add" && listed:
		return nil, fmt.Errorf("table: name (%q) must not be that of an open table: replace it, or give another name by name=…", name)
	case c.change == "add":
		if err := resp.CheckNames(append(v.Names(), name)); err != nil {
			return nil, fmt.Errorf("table: %s", strings.TrimPrefix(err.Error(), "resp: "))
		}
	default:
		var err error
		if p.was, err = v.Find(name); err != nil {
			return nil, fmt.Errorf("table: %w", err)
		}
		p.spec.Name = p.was.Name // by its number, too
	}
	switch c.change {
	case "drop":
		if readers := r.unix.readers(p.was.Cache); len(readers) > 0 && !c.force {
			return nil, fmt.Errorf("table: %s must not be dropped while processes are attached to its cache: %s; end them first, or give --force: they then read on with the rows as they are",
				name, strings.Join(readers, ", "))
		}
		return p, nil
	case "replace":
		return p, r.prepareReplacementLocked(ctx, p)
	}
	p.config = r.config.alone(p.spec)
	return p, r.openNext(ctx, p, p.config.Snapshot)
}

// openNext opens the cache that is to hold a table. What it takes of memory comes on top of the caches that there are.
func (r *running) openNext(ctx context.Context, p *prepared, restore string) (err error) {
	p.config.State = "" // the next start may have other tables, and would not give the memory back
	if !p.config.Force && !p.force {
		if err := p.config.fits(); err != nil {
			return fmt.Errorf("table: %s: %w", p.spec.name(), err)
		}
	}
	p.next, err = r.load(ctx, p.config, restore)
	return err
}

// prepareReplacementLocked decides how a table is replaced, and does what can fail. REQUIRES: r.changing is held.
func (r *running) prepareReplacementLocked(ctx context.Context, p *prepared) error {
	s, err := p.was.Cache.Stats()
	if err != nil {
		return err
	}
	alone, was, name := len(s.Tables) == 1, &s.Tables[p.was.Index], p.was.Name
	p.spec.inherit(&r.configs[p.was.Cache].Tables[p.was.Index])
	table, err := p.spec.open(ctx)
	if err != nil {
		return err
	}
	rows, rowBytes, of := int64(table.Rows()), table.RowBytes(), table.DType()
	if err := table.Close(); err != nil {
		return err
	}
	why := "" // not in place
	switch {
	case p.spec.File == "" || p.spec.Place.Given():
		why = "its rows must come from a file of rows"
	case of != was.DType || rowBytes != was.RowBytes:
		why = fmt.Sprintf("its rows (%s, %d bytes) must be like those of before (%s, %d bytes)", of, rowBytes, was.DType, was.RowBytes)
	case rows < was.Rows || rows > was.Capacity:
		why = fmt.Sprintf("its rows (%d) must be %d to %d, the rows of before and the capacity", rows, was.Rows, was.Capacity)
	}
	if why == "" {
		if file, err := tablefile.Open(p.spec.File); err == nil {
			p.rows = file
		} else {
			why = err.Error() // such as a folder of pages
		}
	}
	if p.inPlace && why != "" {
		return fmt.Errorf("table: %s must not be replaced in place: %s", name, why)
	}
	if p.inPlace || !alone && p.rows != nil {
		return nil
	}
	if p.rows != nil {
		p.rows.Close()
		p.rows = nil
	}
	if rows <= was.Capacity {
		p.spec.Capacity = was.Capacity // attached processes have mapped as much
	}
	if readers := r.unix.readers(p.was.Cache); len(readers) > 0 && !p.force {
		if !alone {
			return fmt.Errorf("table: %s must be replaced in place, as it shares its cache with other tables, and processes are attached to that: %s. But %s. End them first, or give --force: they then read on with the rows as they are",
				name, strings.Join(readers, ", "), why)
		}
		if of != was.DType || rowBytes != was.RowBytes || rows > was.Capacity {
			return fmt.Errorf("table: %s must have rows of %s and %d bytes, at most %d of them, while processes are attached that know it so: %s; end them first, or give --force: they then read on with the rows as they are",
				name, was.DType, was.RowBytes, was.Capacity, strings.Join(readers, ", "))
		}
	}
	restore, before := "", r.configs[p.was.Cache]
	p.config = r.config.alone(p.spec)
	if alone { // what is cached stays cached
		p.config.Name, p.config.Snapshot = before.Name, before.Snapshot
		if p.spec.Budget == before.Tables[0].Budget { // it may have been changed since
			p.config.Budget, p.config.leastBudget = budgetsOf(&s), 0
		}
		if restore, err = temporarySnapshot(p.was.Cache); err != nil {
			return err
		}
		defer os.Remove(restore)
	}
	if err = r.openNext(ctx, p, restore); err != nil && why == "" {
		err = fmt.Errorf("%w\n--in-place needs no second copy: it replaces the rows that differ, one after the other", err)
	}
	return err
}

// budgetsOf returns the budgets of a cache's devices as --gpu-memory has them.
func budgetsOf(s *cache.Stats) string {
	var all []string
	for i := range s.Devices {
		all = append(all, fmt.Sprint(s.Devices[i].BudgetBytes))
	}
	if same := slices.Compact(slices.Clone(all)); len(same) == 1 {
		all = same
	}
	return strings.Join(all, ",")
}

// temporarySnapshot writes the numbers of the rows that a cache holds to a file.
func temporarySnapshot(c *cache.Cache) (string, error) {
	f, err := os.CreateTemp("", "tensorcached-*")
	if err != nil {
		return "", err
	}
	f.Close()
	if err := c.Snapshot(f.Name()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// publishLocked publishes a change, and returns when nobody reads what is of before. REQUIRES: r.changing is held.
func (r *running) publishLocked(ctx context.Context, p *prepared) (string, error) {
	name := p.spec.name()
	if p.rows != nil {
		changed, rows, err := r.rewrite(ctx, p)
		if err != nil {
			return "", fmt.Errorf("table: %s: in place: %d rows are replaced, others not; the command may be given again: %w", name, changed, err)
		}
		r.configs[p.was.Cache].Tables[p.was.Index] = p.spec
		return fmt.Sprintf("%s replaced in place: %s of %s rows differed", name, humanize.Comma(changed), humanize.Comma(rows)), nil
	}
	var add []*cache.Cache
	var drop []string
	if p.next != nil {
		add = []*cache.Cache{p.next}
		r.configs[p.next] = p.config
		r.caches = append(r.caches, p.next)
	} else {
		drop = []string{name}
	}
	unused, err := r.tables.Publish(add, drop)
	if err != nil {
		return "", err
	}
	if p.was == nil {
		t, err := r.tables.View().Find(name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s added: %s rows of %d B", name, humanize.Comma(t.Rows()), t.RowBytes), nil
	}
	text := name + " dropped"
	if p.next != nil {
		text = name + " replaced"
	}
	if slices.Contains(unused, p.was.Cache) {
		return text, r.retireLocked(ctx, p.was.Cache, p.next != nil && !p.force)
	}
	// The other tables of its cache get its slots at once. Its rows in host memory go with them.
	return text + "; its rows in host memory are kept until the other tables of its cache are dropped or tensorcached restarts", invalidate(p.was)
}

// leaveTime is how long attached processes may take to attach to a cache that has taken the place of theirs.
const leaveTime = 30 * time.Second

// retireLocked closes a cache that no table is read from. follow says that attached processes attach to the one in its place.
func (r *running) retireLocked(ctx context.Context, c *cache.Cache, follow bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime) // the change is made
	defer cancel()
	err := r.unix.retire(ctx, c, follow)
	if err != nil {
		err = fmt.Errorf("table: it is replaced, but %s", strings.TrimPrefix(err.Error(), "serve: "))
	}
	folder := r.configs[c].State
	r.caches = slices.DeleteFunc(r.caches, func(of *cache.Cache) bool { return of == c })
	delete(r.configs, c)
	err = errors.Join(err, c.Close())
	kept.Remove(folder) // nobody is to take it over
	return err
}

// invalidate withdraws all rows of a table that is no longer listed from the slabs of its cache.
func invalidate(t *catalog.Table) error {
	const part = 1 << 16
	rows := make([]int64, 0, part)
	for row, n := int64(0), t.Rows(); row < n; {
		for rows = rows[:0]; row < n && len(rows) < part; row++ {
			rows = append(rows, row)
		}
		if err := t.Cache.Invalidate(t.Index, rows); err != nil {
			return err
		}
	}
	return nil
}

// rewrite updates the rows of a table that differ from those of a file, and appends those that the table does not have. It reads the whole file before it changes
// anything.
func (r *running) rewrite(ctx context.Context, p *prepared) (changed, rows int64, err error) {
	if _, err := r.compare(ctx, p, nil); err != nil {
		return 0, 0, err
	}
	again, err := tablefile.Open(p.spec.File)
	if err != nil {
		return 0, 0, err
	}
	p.rows.Close()
	p.rows = again
	changed, err = r.compare(ctx, p, func(numbers []int64, data []byte) error { return p.was.Cache.Update(ctx, p.was.Index, numbers, data) })
	return changed, int64(again.Rows()), err
}

// compare reads a file of rows and hands those that differ from the table's to update, if that is not nil. It returns how many do.
func (r *running) compare(ctx context.Context, p *prepared, update func(numbers []int64, data []byte) error) (differ int64, err error) {
	n := p.was.RowBytes
	part := max(1, 1<<20/n)
	given, held := make([]byte, part*n), make([]byte, part*n)
	numbers, changed, data := make([]int64, 0, part), make([]int64, 0, part), make([]byte, 0, part*n)
	for row, all := int64(0), int64(p.rows.Rows()); row < all; {
		if err := ctx.Err(); err != nil {
			return differ, err
		}
		got, err := p.rows.Read(given[:min(int64(part), all-row)*int64(n)])
		if err != nil && !errors.Is(err, io.EOF) {
			return differ, err
		}
		if got == 0 {
			return differ, io.ErrUnexpectedEOF
		}
		if update == nil {
			row += int64(got)
			continue
		}
		numbers, changed, data = numbers[:0], changed[:0], data[:0]
		for i := row; i < min(row+int64(got), p.was.Rows()); i++ {
			numbers = append(numbers, i)
		}
		if len(numbers) > 0 {
			if err := p.was.Cache.Gather(ctx, cache.Request{Table: p.was.Index, Rows: numbers, Out: held[:len(numbers)*n]}); err != nil {
				return differ, err
			}
		}
		for i := range got {
			if one := given[i*n:][:n]; i >= len(numbers) || !bytes.Equal(one, held[i*n:][:n]) {
				changed, data = append(changed, row+int64(i)), append(data, one...)
			}
		}
		if len(changed) > 0 {
			if err := update(changed, data); err != nil {
				return differ, err
			}
		}
		differ, row = differ+int64(len(changed)), row+int64(got)
	}
	return differ, nil
}

// inherit sets what a replacement does not say as the table has it.
func (t *TableSpec) inherit(was *TableSpec) {
	if t.Codec == "" {
		t.Codec = was.Codec
	}
	if t.Budget == "" {
		t.Budget = was.Budget
	}
	if !t.Resident {
		t.Resident, t.Slots = was.Resident, was.Slots
	}
}

// isOpenLocked says whether a table is open as it is described, for example by a command. REQUIRES: r.changing is held.
func (r *running) isOpenLocked(spec *TableSpec) bool {
	t, err := r.tables.View().Find(spec.name())
	if err != nil {
		return false
	}
	open, asked := r.configs[t.Cache].Tables[t.Index], *spec
	open.Name, asked.Name = open.name(), asked.name()
	return open == asked
}

// reloadTables makes the differences of the tables of two configs, all or none.
func (r *running) reloadTables(next *Config) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	var changes []tableChange
	listed := r.tables.View().Names()
	for _, t := range next.Tables {
		if slices.Contains(r.config.Tables, t) {
			continue // what a command has done to it since stays
		}
		switch name := t.name(); {
		case !slices.Contains(listed, name):
			changes = append(changes, tableChange{change: "add", spec: t})
		case !r.isOpenLocked(&t):
			changes = append(changes, tableChange{change: "replace", spec: t})
		}
	}
	for _, t := range r.config.Tables {
		if name := t.name(); slices.Contains(listed, name) && !slices.Contains(next.names(), name) {
			changes = append(changes, tableChange{change: "drop", spec: t})
		}
	}
	if _, err := r.applyLocked(r.life, changes...); err != nil {
		return err
	}
	r.config.Tables = slices.Clone(next.Tables)
	return nil
}
