package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// Slots that go from one master to another (MIGRATING, IMPORTING). Until such a slot has arrived, each of its keys lies on one of the two masters, and a node that
// lacks a key answers ASK, or TRYAGAIN to a script whose keys lie on both. Reads and single writes follow ASK key by key. A generation that is made of updates is
// committed only if all replicas have it, and the replicas of neither master have all keys: so a merge waits, before it writes and before it commits.

// quietFor is how long no slot may have been on its way after one was: a reshard moves slots one after the other, with gaps between them.
const quietFor = 500 * time.Millisecond

// settleUntil waits until no master has a slot on its way. The error wraps pages.ErrUnsettled if one still has at the end.
func (c control) settleUntil(ctx context.Context, end time.Time) error {
	defer c.waiting.Store(0)
	var begun, quiet time.Time // of the wait; since when no slot is on its way
	for wait := firstWait; ; wait = longer(wait) {
		moving := c.moving(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 0
		for _, m := range moving {
			n += len(m.moving)
		}
		c.waiting.Store(int64(n))
		switch {
		case n == 0 && begun.IsZero():
			return nil
		case n == 0 && quiet.IsZero():
			quiet = time.Now()
		case n == 0 && time.Since(quiet) >= quietFor:
			c.o.Logger.Info("cluster: slots have arrived, the merge goes on", slog.String("table", c.table), slog.Duration("after", time.Since(begun)))
			return nil
		case begun.IsZero():
			begun = time.Now()
			c.o.Logger.Warn("cluster: a merge waits for slots on their way between masters", slog.String("table", c.table), slog.String("slots", describe(moving)))
		}
		if n > 0 {
			quiet = time.Time{}
		} else {
			wait = firstWait
		}
		if n > 0 && time.Until(end) <= 0 {
			return fmt.Errorf("cluster: table %s: slots are on their way between masters: %s: %w", c.table, describe(moving), pages.ErrUnsettled)
		}
		if !sleep(ctx, min(wait, max(firstWait, time.Until(end)+time.Millisecond))) {
			return ctx.Err()
		}
	}
}

// moving returns the masters that have slots on their way, as they say themselves, in the order of their addresses. Those that do not answer are left out:
// Commit asks each master again that has keys of the generation.
func (c control) moving(ctx context.Context) (found []master) {
	if c.client.Mode() != valkey.ClientModeCluster {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, n := range c.client.Nodes() {
		asked.Go(func() {
			text, err := n.Do(ctx, n.B().ClusterNodes().Build()).ToString()
			if err != nil {
				return
			}
			m, err := parseNodes(text)
			if err != nil || len(m.moving) == 0 { // or a replica
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, m)
		})
	}
	asked.Wait()
	slices.SortFunc(found, func(a, b master) int { return strings.Compare(a.addr, b.addr) })
	return found
}

// describe names masters and their slots on the way, the first few of each.
func describe(moving []master) string {
	var all []string
	for _, m := range moving {
		named, more := m.moving, ""
		if n := len(named) - missingNamed; n > 0 {
			named, more = named[:missingNamed], fmt.Sprintf(" and %d more", n)
		}
		all = append(all, fmt.Sprintf("%s has %s%s", m.addr, strings.Trim(fmt.Sprint(named), "[]"), more))
	}
	return strings.Join(all, ", ")
}

// elsewhere reports whether a node says that a key of a slot on its way lies on the other master, or that keys lie on both.
func elsewhere(err error) bool {
	ve, ok := errors.AsType[*valkey.ValkeyError](err)
	if !ok {
		return false
	}
	_, asked := ve.IsAsk()
	return asked || ve.IsTryAgain()
}
