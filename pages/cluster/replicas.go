package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// awaitReplicas waits until the replicas have what their masters have been sent for the keys, so that it survives the loss of a master, and
// reports whether they do. A replica that does not come along within Options.replicasWait is passed over, with a warning. Replicas that the cluster
// has marked as failed are waited for only if down is set. What cannot be found out counts as not acknowledged. The keys must exist and hold text.
func (c control) awaitReplicas(ctx context.Context, down bool, names ...string) (all bool) {
	all, _ = c.tryReplicas(ctx, down, names...)
	return all
}

// awaitSettled is awaitReplicas for failed replicas, too, that waits until no slot is on its way, and then again for the replicas: keys of such a slot may lie on
// either master. The error is that of settle.
func (c control) awaitSettled(ctx context.Context, names ...string) (all bool, err error) {
	end := time.Now().Add(c.o.settleWait)
	for wait := firstWait; ; wait = longer(wait) {
		if err := c.settleUntil(ctx, end); err != nil {
			return false, err
		}
		all, moving := c.tryReplicas(ctx, true, names...)
		if !moving {
			return all, nil
		}
		if time.Now().After(end) {
			return false, fmt.Errorf("a slot is on its way between masters: %w", pages.ErrUnsettled)
		}
		if !sleep(ctx, wait) {
			return false, ctx.Err()
		}
	}
}

// tryReplicas is awaitReplicas. moving says that a slot is on its way: then the answer may be another one when it has arrived.
func (c control) tryReplicas(ctx context.Context, down bool, names ...string) (all, moving bool) {
	var waited [slots]bool
	all = true
	for _, name := range names {
		if waited[slotOf(name)] {
			continue
		}
		m, have, err := c.wait(ctx, name, down)
		if down && elsewhere(err) {
			return false, true
		}
		if err != nil {
			c.o.Logger.Warn("cluster: replicas are not waited for", slog.String("table", c.table), slog.String("key", name), slog.Any("error", err))
			return false, false
		}
		for _, r := range m.slots {
			for slot := r[0]; slot <= r[1]; slot++ {
				waited[slot] = true
			}
		}
		// A key of a slot on its way may lie on the other master. Names need not be of all slots, so with down no slot may be on its way.
		slot := slotOf(name)
		moves := !waited[slot] || down && len(m.moving) > 0 || slices.Contains(m.moving, int(slot))
		waited[slot] = true
		if down && moves {
			return false, true
		}
		if replicas := m.replicas(down); have < int64(replicas) || moves {
			all = false
			c.o.Logger.Warn("cluster: not all replicas have everything yet", slog.String("master", m.addr), slog.Int("replicas", replicas),
				slog.Int64("have", have), slog.Bool("moving", moves), slog.String("table", c.table))
		}
	}
	return all, false
}

// behind is a write that changes nothing, for WAIT to wait behind. It returns 0, and writes nothing, if the key is missing or empty.
const behind = `
if redis.call('STRLEN', KEYS[1]) == 0 then return 0 end
return redis.call('APPEND', KEYS[1], '')`

// wait returns the master of a key, and how many replicas have all that it had been sent. It tries again while the slot has no master. With down it does not
// wait for a slot on its way.
func (c control) wait(ctx context.Context, name string, down bool) (m master, have int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.replicasWait+controlTimeout)
	defer cancel()
	for wait := firstWait; ; wait = longer(wait) {
		m, have, err = c.waitOnce(ctx, name, down)
		if err == nil || elsewhere(err) || errors.Is(err, ErrMissing) || errors.Is(err, errAnswer) || !temporary(err) || !sleep(ctx, wait) {
			return m, have, err
		}
	}
}

// waitOnce is one try of wait. WAIT is about the writes of its own connection, so one comes first. The same connection asks the master for its replicas.
func (c control) waitOnce(ctx context.Context, name string, down bool) (m master, have int64, err error) {
	own, end := c.client.Dedicate()
	defer end()
	n, err := own.Do(ctx, own.B().Eval().Script(behind).Numkeys(1).Key(name).Build()).AsInt64()
	if err != nil {
		return m, 0, err
	}
	if n == 0 {
		return m, 0, fmt.Errorf("cluster: key %s: %w", name, ErrMissing)
	}
	if c.client.Mode() == valkey.ClientModeCluster {
		m, err = askMaster(ctx, own.B().ClusterNodes().Build(), own, parseNodes)
	} else {
		m, err = askMaster(ctx, own.B().Info().Section("replication").Build(), own, parseReplication)
	}
	if err != nil || m.replicas(down) == 0 {
		return m, 0, err
	}
	have, err = own.Do(ctx, own.B().Wait().Numreplicas(int64(m.replicas(down))).Timeout(c.o.replicasWait.Milliseconds()).Build()).AsInt64()
	return m, have, err
}

// askMaster sends the command that asks a master for its replicas, and reads the answer.
func askMaster(ctx context.Context, command valkey.Completed, own valkey.DedicatedClient, parse func(string) (master, error)) (m master, err error) {
	text, err := own.Do(ctx, command).ToString()
	if err != nil {
		return m, err
	}
	return parse(text)
}

// master is what a master says of itself and of its replicas.
type master struct {
	addr     string   // "" for a server that is not of a cluster
	slots    [][2]int // first and last
	moving   []int    // slots on their way to or from another master, which may have the keys
	up, down int      // replicas, and those that are marked as failed
}

func (m master) replicas(down bool) int {
	if down {
		return m.up + m.down
	}
	return m.up
}

// parseNodes reads a master's answer to CLUSTER NODES. A line is: id, address, flags, master's id or -, ping, pong, epoch, link, slots. Other than
// CLUSTER SLOTS it names replicas that are marked as failed.
func parseNodes(text string) (m master, err error) {
	id := ""
	replicas := map[string]master{}                                     // by the master's id
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) { // by RESP3, the format of a text comes before it
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 8 {
			return m, fmt.Errorf("%w: CLUSTER NODES: line %.80q", errAnswer, line)
		}
		flags := strings.Split(f[2], ",")
		switch {
		case slices.Contains(flags, "slave") || slices.Contains(flags, "replica"):
			r := replicas[f[3]]
			if slices.Contains(flags, "fail") || slices.Contains(flags, "noaddr") {
				r.down++
			} else {
				r.up++
			}
			replicas[f[3]] = r
		case slices.Contains(flags, "myself"):
			id = f[0]
			m.addr, _, _ = strings.Cut(f[1], "@")
			for _, text := range f[8:] {
				if moving, ok := strings.CutPrefix(text, "["); ok { // [slot->-id] or [slot-<-id]
					from, _, _ := strings.Cut(moving, "-")
					slot, err := strconv.Atoi(from)
					if err != nil {
						return m, fmt.Errorf("%w: CLUSTER NODES: slot %.80q", errAnswer, text)
					}
					m.moving = append(m.moving, slot)
					continue
				}
				from, to, ok := strings.Cut(text, "-")
				if !ok {
					to = from
				}
				first, err1 := strconv.Atoi(from)
				last, err2 := strconv.Atoi(to)
				if err := errors.Join(err1, err2); err != nil || first < 0 || last >= slots {
					return m, fmt.Errorf("%w: CLUSTER NODES: slots %.80q", errAnswer, text)
				}
				m.slots = append(m.slots, [2]int{first, last})
			}
		}
	}
	if id == "" {
		return m, errors.New("cluster: the node that has the key is no longer a master")
	}
	m.up, m.down = replicas[id].up, replicas[id].down
	return m, nil
}

// parseReplication reads the answer of a server that is not of a cluster to INFO replication. The server does not know replicas that are not connected.
func parseReplication(text string) (m master, err error) {
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "connected_slaves:"); ok {
			if m.up, err = strconv.Atoi(n); err != nil {
				return m, fmt.Errorf("%w: INFO replication: %w", errAnswer, err)
			}
			m.slots = [][2]int{{0, slots - 1}}
			return m, nil
		}
	}
	return m, fmt.Errorf("%w: INFO replication: connected_slaves is missing", errAnswer)
}

// errAnswer says that a master names its replicas in another form.
var errAnswer = errors.New("cluster: answer cannot be read")
