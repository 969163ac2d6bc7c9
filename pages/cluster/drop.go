package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// errInUse is wrapped by errors for generations that are not dropped: the current one, or one that somebody reads or loads.
var errInUse = errors.New("is in use")

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
	} else if !c.awaitReplicas(ctx, false, c.last()) {
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
