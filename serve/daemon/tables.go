package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/serve/catalog"
	"github.com/tensorcache/tensorcache/serve/resp"
)

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
	spec.within(change.Folder)
	said, late, err := r.applyLocked(ctx, tableChange{change.Change, spec, true, change.InPlace, change.Force})
	if err == nil && late != nil {
		return said, late
	}
	if err != nil {
		r.log.Error("tables not changed", slog.String("change", change.Change), slog.String("table", spec.name()), slog.Any("error", err))
	}
	return said, err
}

// tableChange adds, replaces or drops a table.
type tableChange struct {
	change         string
	spec           TableSpec
	partial        bool // what spec does not say stays
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
// has done. late says what was left of tables of before once all changes were made. REQUIRES: r.changing is held.
func (r *running) applyLocked(ctx context.Context, changes ...tableChange) (said string, late, err error) {
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
				statefolder.Remove(p.config.State)
			}
		}
	}()
	left := len(r.tables.View().Tables)
	for _, c := range changes {
		p, err := r.prepareLocked(ctx, c)
		if err != nil {
			return "", nil, err
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
		return "", nil, errors.New("table: the last table must not be dropped: replace it, or end tensorcached")
	}
	if err := ctx.Err(); err != nil {
		return "", nil, err
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
	var lates []error
	for _, p := range all {
		text, late, err := r.publishLocked(ctx, p)
		if err != nil {
			return "", nil, err
		}
		r.log.Info("tables changed", slog.String("change", p.change), slog.String("table", p.spec.name()), slog.String("result", text))
		lines = append(lines, text)
		if late != nil {
			r.log.Warn("tables changed, but not all of before has ended", slog.String("table", p.spec.name()), slog.Any("error", late))
			lates = append(lates, late)
		}
	}
	return strings.Join(lines, "\n"), errors.Join(lates...), nil
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
	if !p.config.Force && !p.force {
		if err := p.config.fits(); err != nil {
			return fmt.Errorf("table: %s: %w", p.spec.name(), err)
		}
	}
	if p.next, err = r.load(ctx, p.config, restore); err != nil {
		statefolder.Remove(p.config.State) // what it has of memory already
	}
	return err
}

// prepareReplacementLocked decides how a table is replaced, and does what can fail. REQUIRES: r.changing is held.
func (r *running) prepareReplacementLocked(ctx context.Context, p *prepared) error {
	s, err := p.was.Cache.Stats()
	if err != nil {
		return err
	}
	alone, was, name := len(s.Tables) == 1, &s.Tables[p.was.Index], p.was.Name
	open := &r.configs[p.was.Cache].Tables[p.was.Index]
	if p.partial {
		p.spec.inherit(open)
	}
	table, err := p.spec.open(ctx)
	if err != nil {
		return err
	}
	rows, rowBytes, of := int64(table.Rows()), table.RowBytes(), table.DType()
	if err := table.Close(); err != nil {
		return err
	}
	why, like := "", p.spec // why not in place
	like.File, like.Name, like.Place = open.File, open.Name, open.Place
	switch {
	case like != *open:
		why = "it is described otherwise than before, apart from its file"
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
		p.spec.Capacity = max(p.spec.Capacity, was.Capacity) // attached processes have mapped as much
	}
	if readers := r.unix.readers(p.was.Cache); len(readers) > 0 && !p.force {
		if !alone {
			return fmt.Errorf("table: %s must be replaced in place, as it shares its cache with other tables, and processes are attached to that: %s. But %s. End them first, or give --force: they then read on with the rows as they are",
				name, strings.Join(readers, ", "), why)
		}
		if of != was.DType || rowBytes != was.RowBytes || max(rows, p.spec.Capacity) > was.Capacity {
			return fmt.Errorf("table: %s must have rows of %s and %d bytes, and a capacity of at most %d, while processes are attached that know it so: %s; end them first, or give --force: they then read on with the rows as they are",
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
		if restore, err = r.temporarySnapshot(p.was.Cache); err != nil {
			r.log.Warn("rows that are cached will not be cached in the replacement: their numbers cannot be written", slog.String("table", name), slog.Any("error", err))
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

// temporarySnapshot writes the numbers of the rows that a cache holds to a file: where temporary files are or, if that cannot be written to, beside --snapshot.
func (r *running) temporarySnapshot(c *cache.Cache) (string, error) {
	f, err := os.CreateTemp("", "tensorcached-*")
	if err != nil && r.config.Snapshot != "" {
		f, err = os.CreateTemp(filepath.Dir(r.config.Snapshot), ".tensorcached-*")
	}
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

// publishLocked publishes a change, and returns when nobody reads what is of before, or late if somebody still does: the change is made all the same. REQUIRES: r.changing
// is held.
func (r *running) publishLocked(ctx context.Context, p *prepared) (text string, late, err error) {
	name := p.spec.name()
	if p.rows != nil {
		changed, rows, err := r.rewrite(ctx, p)
		if err != nil {
			return "", nil, fmt.Errorf("table: %s: in place: %d rows are replaced, others not; the command may be given again: %w", name, changed, err)
		}
		r.configs[p.was.Cache].Tables[p.was.Index] = p.spec
		return fmt.Sprintf("%s replaced in place: %s of %s rows differed", name, humanize.Comma(changed), humanize.Comma(rows)), nil, nil
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
		if p.next != nil { // applyLocked closes it
			delete(r.configs, p.next)
			r.caches = r.caches[:len(r.caches)-1]
		}
		return "", nil, err
	}
	if p.was == nil {
		t, err := r.tables.View().Find(name)
		if err != nil {
			return "", nil, err
		}
		return fmt.Sprintf("%s added: %s rows of %d B", name, humanize.Comma(t.Rows()), t.RowBytes), nil, nil
	}
	text = name + " dropped"
	if p.next != nil {
		text = name + " replaced"
	}
	if slices.Contains(unused, p.was.Cache) {
		return text, r.retireLocked(ctx, p.was.Cache, p.next != nil && !p.force), nil
	}
	// The other tables of its cache get its slots at once. Its rows in host memory go with them.
	return text + "; its rows in host memory are kept until the other tables of its cache are dropped or tensorcached restarts",
		errors.Join(sharing.SetSource(p.was.Cache, p.was.Index, "no longer served"), invalidate(p.was)), nil
}

// leaveTime is how long attached processes may take to attach to a cache that has taken the place of theirs.
const leaveTime = 30 * time.Second

// retireLocked closes a cache that no table is read from. follow says that attached processes attach to the one in its place.
func (r *running) retireLocked(ctx context.Context, c *cache.Cache, follow bool) error {
	folder := r.configs[c].State
	statefolder.Forget(folder)                                                // nobody is to take it over
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime) // the change is made
	defer cancel()
	err := r.unix.retire(ctx, c, follow)
	if err != nil {
		err = fmt.Errorf("table: the change is made, but %s", strings.TrimPrefix(err.Error(), "serve: "))
	}
	r.caches = slices.DeleteFunc(r.caches, func(of *cache.Cache) bool { return of == c })
	delete(r.configs, c)
	err = errors.Join(err, c.Close())
	statefolder.Remove(folder)
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

// within has the relative paths of a table be of a folder.
func (t *TableSpec) within(folder string) {
	for _, path := range []*string{&t.File, &t.Place.Log, &t.Place.Cache} {
		if *path != "" && !filepath.IsAbs(*path) && !strings.Contains(*path, "://") && filepath.IsAbs(folder) {
			*path = filepath.Join(folder, *path)
		}
	}
}

// inherit sets what a replacement does not say as the table has it.
func (t *TableSpec) inherit(was *TableSpec) {
	t.Codec, t.Capacity = cmp.Or(t.Codec, was.Codec), cmp.Or(t.Capacity, was.Capacity)
	t.Budget = cmp.Or(t.Budget, was.Budget)
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

// auditReload records a change of a table by the configuration: serve and resp record those of clients.
func (r *running) auditReload(c tableChange, err error) {
	if r.audit == nil {
		return
	}
	attrs := []slog.Attr{slog.String("request", c.change), slog.String("by", "SIGHUP"), slog.String("table", c.spec.name())}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	r.audit.LogAttrs(context.Background(), slog.LevelInfo, "tables changed", attrs...)
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
	_, _, err := r.applyLocked(r.life, changes...) // what comes late is in the log
	for _, c := range changes {
		r.auditReload(c, err)
	}
	if err != nil {
		return err
	}
	r.config.Tables = slices.Clone(next.Tables)
	return nil
}
