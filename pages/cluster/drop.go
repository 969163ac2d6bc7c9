package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// errInUse is wrapped by errors for generations that are not dropped: the current one, or one that somebody reads or loads.
var errInUse = errors.New("is in use")

// Generation is one generation that a cluster has of a table.
type Generation struct {
	Number uint64
	// State is "loading", "ready" or "dropping".
	State string
	// Current is set for the one that Open opens.
	Current bool
	// Readers are the names of those who have a lease: host, process ID and a random text.
	Readers []string
}

// Generations returns the generations that a cluster has of a table, in the order of their numbers.
func Generations(ctx context.Context, url string, o Options) ([]Generation, error) {
	c, err := administer(ctx, url, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.list(ctx)
}

// DropOld deletes all generations but the current one and those that somebody reads or loads, also what loaders left that did not finish. It
// returns their numbers.
func DropOld(ctx context.Context, url string, o Options) (dropped []uint64, err error) {
	c, err := administer(ctx, url, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.dropOld(ctx)
}

// administer connects for commands only.
func administer(ctx context.Context, url string, o Options) (control, error) {
	o, err := o.withDefaults()
	if err != nil {
		return control{}, err
	}
	c, _, err := dial(ctx, url, o)
	return c, err
}

func (c control) dropOld(ctx context.Context) (dropped []uint64, err error) {
	all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, g := range all {
		if g.Current {
			continue
		}
		if err := c.drop(ctx, g.Number); err == nil {
			dropped = append(dropped, g.Number)
		} else if !errors.Is(err, errInUse) {
			faults = append(faults, err)
		}
	}
	return dropped, errors.Join(faults...)
}

// list returns all generations.
func (c control) list(ctx context.Context) ([]Generation, error) {
	r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Hgetall().Key(c.generations()).Build() })
	if err != nil {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, err)
	}
	fields, err := r.AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, err)
	}
	current, err := c.current(ctx)
	if err != nil && !errors.Is(err, ErrNoTable) {
		return nil, err
	}
	var all []Generation
	for number, text := range fields {
		s, err := parseState(text)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cluster: table %s: generation (%q) must be a number", c.table, number)
		}
		g := Generation{Number: n, State: s.is, Current: current != nil && current.Generation == n}
		if g.Readers, err = c.readers(ctx, n); err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Generation) int { return int(int64(a.Number - b.Number)) })
	return all, nil
}

// readers returns those who have a lease of a generation, and forgets those whose leases ran out.
func (c control) readers(ctx context.Context, generation uint64) (readers []string, err error) {
	r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Smembers().Key(c.leases(generation)).Build() })
	if err != nil {
		return nil, err
	}
	names, err := r.AsStrSlice()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Exists().Key(c.lease(generation, name)).Build() })
		if err != nil {
			return nil, err
		}
		if n, err := r.AsInt64(); err != nil || n == 1 {
			readers = append(readers, name)
			continue
		}
		if _, err := c.do(ctx, func() valkey.Completed { return c.client.B().Srem().Key(c.leases(generation)).Member(name).Build() }); err != nil {
			return nil, err
		}
	}
	slices.Sort(readers)
	return readers, nil
}

// drop deletes a generation, or goes on with one that is half deleted. The error wraps errInUse if it is not deleted yet. The order of its steps is that of the package comment: mark, then look for leases.
func (c control) drop(ctx context.Context, generation uint64) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("cluster: table %s: generation %d "+format, append([]any{c.table, generation}, args...)...)
	}
	s, found, err := c.state(ctx, generation)
	if err != nil || !found {
		return err
	}
	current, err := c.current(ctx)
	if err != nil && !errors.Is(err, ErrNoTable) {
		return err
	}
	if current != nil && current.Generation == generation {
		return fail("%w: it is the current one", errInUse)
	}
	if s.is == loading {
		r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Exists().Key(c.loader(generation)).Build() })
		if err != nil {
			return err
		}
		if n, err := r.AsInt64(); err != nil || n > 0 {
			return fail("%w: it is being loaded", errInUse)
		}
	}
	marked := s
	marked.is, marked.token = dropping, token()
	if ok, err := c.swap(ctx, generation, s, marked, nil); err != nil {
		return err
	} else if !ok {
		return fail("%w: its state has just changed", errInUse)
	}
	readers, err := c.readers(ctx, generation)
	if err != nil {
		return err
	}
	why := ""
	if len(readers) > 0 {
		why = "it is read by " + readers[0]
	} else if !c.awaitReplicas(ctx, c.last()) {
		// A replica that takes its master's place now may hold this generation for the current one.
		why = "replicas do not know yet that it is not the current one"
	}
	if why == "" {
		return c.erase(ctx, generation, marked)
	}
	if _, err := c.swap(ctx, generation, marked, s, nil); err != nil {
		return err
	}
	return fail("%w: %s", errInUse, why)
}

// erase deletes pages and parts, and then the generation's state.
func (c control) erase(ctx context.Context, generation uint64, s state) error {
	var names []string
	flush := func(least int) error {
		if len(names) < least {
			return nil
		}
		err := c.each(ctx, names, func(name string) valkey.Completed { return c.client.B().Unlink().Key(name).Build() })
		names = names[:0]
		return err
	}
	for page := range s.pages {
		names = append(names, c.page(generation, page))
		if err := flush(erasedAtOnce); err != nil {
			return err
		}
	}
	for p, n := range s.chunks {
		for chunk := range n {
			names = append(names, c.part(generation, pages.Part(p), chunk))
			if err := flush(erasedAtOnce); err != nil {
				return err
			}
		}
	}
	if err := flush(1); err != nil {
		return err
	}
	_, err := c.do(ctx, func() valkey.Completed {
		return c.client.B().Del().Key(c.leases(generation)).Key(c.loader(generation)).Build()
	})
	if err == nil {
		_, err = c.do(ctx, func() valkey.Completed {
			return c.client.B().Hdel().Key(c.generations()).Field(strconv.FormatUint(generation, 10)).Build()
		})
	}
	return err
}

// erasedAtOnce is how many keys are deleted by one pipeline.
const erasedAtOnce = 1024

// each sends one command for each name, those that fail again, until controlTimeout passes without any success.
func (c control) each(ctx context.Context, names []string, command func(name string) valkey.Completed) error {
	return c.eachResult(ctx, names, command, func(string, valkey.ValkeyResult) {})
}

func (c control) eachResult(ctx context.Context, names []string, command func(name string) valkey.Completed, result func(name string, r valkey.ValkeyResult)) error {
	for wait := firstWait; ; wait = longer(wait) {
		commands := make([]valkey.Completed, len(names))
		for i, name := range names {
			commands[i] = command(name)
		}
		part, cancel := context.WithTimeout(ctx, controlTimeout)
		var again []string
		var last error
		for i, r := range c.client.DoMulti(part, commands...) {
			if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
				if !temporary(err) {
					cancel()
					return fmt.Errorf("cluster: key %s: %w", names[i], err)
				}
				again, last = append(again, names[i]), err
				continue
			}
			result(names[i], r)
		}
		cancel()
		if len(again) == 0 {
			return nil
		}
		if ctx.Err() != nil || len(again) == len(names) && wait == longestWait || !sleep(ctx, wait) {
			return fmt.Errorf("cluster: key %s: %w", again[0], errors.Join(ctx.Err(), last))
		}
		names = again
	}
}
