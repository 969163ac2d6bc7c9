package cluster

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

// replicasWait is how long Commit waits for replicas to have what their masters have.
const replicasWait = 10 * time.Second

// awaitReplicas waits until every replica that is connected has what its master had at the beginning, so that pages survive the loss of a
// master. A replica that does not come along within replicasWait is passed over, with a warning.
func (w *Writer) awaitReplicas(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, replicasWait)
	defer cancel()
	for addr, node := range w.client.Nodes() {
		want := int64(-1)
		for {
			have, replicas := replication(ctx, node)
			if want < 0 {
				want = have
			}
			late := false
			for _, offset := range replicas {
				late = late || offset < want
			}
			if !late {
				break
			}
			if !sleep(ctx, 20*time.Millisecond) {
				w.o.Logger.Warn("cluster: a replica does not have all pages yet", slog.String("master", addr), slog.String("table", w.table))
				break
			}
		}
	}
}

// replication returns how far a master has written, in bytes, and how far its replicas are; nothing for a node that is no master.
func replication(ctx context.Context, node valkey.Client) (master int64, replicas []int64) {
	text, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
	if err != nil || !strings.Contains(text, "role:master") {
		return 0, nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if at, ok := strings.CutPrefix(line, "master_repl_offset:"); ok {
			master, _ = strconv.ParseInt(at, 10, 64)
		}
		if strings.HasPrefix(line, "slave") && strings.Contains(line, "state=online") {
			if _, at, ok := strings.Cut(line, "offset="); ok {
				at, _, _ = strings.Cut(at, ",")
				offset, _ := strconv.ParseInt(at, 10, 64)
				replicas = append(replicas, offset)
			}
		}
	}
	return master, replicas
}
