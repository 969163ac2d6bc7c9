package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/valkey-io/valkey-go"
)

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

// administer connects for commands only.
func administer(ctx context.Context, url string, o Options) (control, error) {
	o, err := o.withDefaults()
	if err != nil {
		return control{}, err
	}
	c, _, err := dial(ctx, url, o)
	return c, err
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
