package cluster

import (
	"context"
	"log/slog"
)

// awaitReplicas waits until the replicas have what their masters have been sent for the keys, so that it survives the loss of a master, and
// reports whether they do. A replica that does not come along within Options.replicasWait is passed over, with a warning. The keys must hold text.
func (c control) awaitReplicas(ctx context.Context, names ...string) (all bool) {
	net, err := newNetwork(ctx, c.reading, c.o)
	if err != nil {
		c.o.Logger.Warn("cluster: replicas are not waited for", slog.String("table", c.table), slog.Any("error", err))
		return false
	}
	t := net.now.Load()
	waited := map[*shard]bool{}
	all = true
	for _, name := range names {
		sh := t.shard(slotOf(name))
		if sh == nil || waited[sh] {
			continue
		}
		waited[sh] = true
		if replicas := int64(len(sh.nodes) - 1); replicas > 0 {
			if n, err := c.wait(ctx, name, replicas); err != nil || n < replicas {
				all = false
				c.o.Logger.Warn("cluster: not all replicas have everything yet", slog.String("master", sh.master().addr), slog.Int64("replicas", replicas),
					slog.Int64("have", n), slog.String("table", c.table), slog.Any("error", err))
			}
		}
	}
	return all
}

// wait returns how many replicas have all that the master of a key had been sent. WAIT is about the writes of its own connection, so an empty
// text is appended to the key first.
func (c control) wait(ctx context.Context, name string, replicas int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.replicasWait+controlTimeout)
	defer cancel()
	own, end := c.client.Dedicate()
	defer end()
	if err := own.Do(ctx, own.B().Append().Key(name).Value("").Build()).Error(); err != nil {
		return 0, err
	}
	return own.Do(ctx, own.B().Wait().Numreplicas(replicas).Timeout(c.o.replicasWait.Milliseconds()).Build()).AsInt64()
}
