package cluster

import (
	"context"
	"log/slog"
	"time"
)

// replicasWait is how long Commit waits for replicas to have what their masters have.
const replicasWait = 10 * time.Second

// awaitReplicas waits until the replicas have what their masters have been sent for the keys, so that pages survive the loss of a master. A
// replica that does not come along within replicasWait is passed over, with a warning.
func (w *Writer) awaitReplicas(ctx context.Context, names []string) {
	net, err := newNetwork(ctx, w.reading, w.o)
	if err != nil {
		w.o.Logger.Warn("cluster: replicas are not waited for", slog.String("table", w.table), slog.Any("error", err))
		return
	}
	t := net.now.Load()
	waited := map[*shard]bool{}
	for _, name := range names {
		sh := t.shard(slotOf(name))
		if sh == nil || waited[sh] {
			continue
		}
		waited[sh] = true
		if replicas := int64(len(sh.nodes) - 1); replicas > 0 {
			if n, err := w.wait(ctx, name, replicas); err != nil || n < replicas {
				w.o.Logger.Warn("cluster: not all replicas have all pages yet", slog.String("master", sh.master().addr), slog.Int64("replicas", replicas),
					slog.Int64("have", n), slog.String("table", w.table), slog.Any("error", err))
			}
		}
	}
}

// wait returns how many replicas have all that the master of a key had been sent. WAIT is about the writes of its own connection, so an empty
// text is appended to the key first.
func (w *Writer) wait(ctx context.Context, name string, replicas int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, replicasWait+controlTimeout)
	defer cancel()
	c, end := w.client.Dedicate()
	defer end()
	if err := c.Do(ctx, c.B().Append().Key(name).Value("").Build()).Error(); err != nil {
		return 0, err
	}
	return c.Do(ctx, c.B().Wait().Numreplicas(replicas).Timeout(replicasWait.Milliseconds()).Build()).AsInt64()
}
