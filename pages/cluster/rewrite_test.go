package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// replacements are updates of the first rows of a table: their rows in data.
type replacements struct {
	rows []int64
	data []byte
}

func (r replacements) Rows() []int64 { return r.rows }
func (r replacements) Read(i int, _ []byte) ([]byte, bool, error) {
	return r.data[int(r.rows[i])*testRowBytes:][:testRowBytes], false, nil
}

// rewrite writes the first n rows of data into the next generation of a store's table.
func rewrite(t *testing.T, s pages.Rewritable, data []byte, n int64) error {
	t.Helper()
	w, err := s.Rewriter(t.Context())
	if err != nil {
		return err
	}
	r := replacements{data: data}
	for row := range n {
		r.rows = append(r.rows, row)
	}
	_, _, err = pages.Rewrite(t.Context(), s, w, r, nil)
	return err
}

func TestRewriter_ReplacesItsOwnGenerationOnly(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	old, fresh := rowsOf(1000, 71), rowsOf(1000, 72)
	load(t, c.URL(), "x", old, Options{})
	s, table := openTable(t, c.URL(), Options{Table: "x"})
	if err := rewrite(t, s, fresh, 1000); err != nil {
		t.Fatal(err)
	}
	allRows(t, table, old)
	again, err := s.Reopen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, err := pages.OpenStores(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	allRows(t, now, fresh)
	if err := rewrite(t, s, old, 1); !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), "generation 1, which is read, is not the current one") {
		t.Errorf("got %v", err)
	}
	// Another loader commits while this one writes.
	w, err := again.(*Store).Rewriter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load(t, c.URL(), "x", old, Options{})
	if _, _, err := pages.Rewrite(t.Context(), again, w, replacements{}, nil); !errors.Is(err, errReplaced) {
		t.Errorf("got %v", err)
	}
	if n := keysOf(t, c, "x", int(w.Generation())); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	// Old generations go when nobody reads them.
	if err := errors.Join(table.Close(), again.(*Store).DropOld(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n, m := keysOf(t, c, "x", 1), keysOf(t, c, "x", 2); n != 0 || m == 0 {
		t.Errorf("%d keys of the generation that nobody reads, %d of the one that is read", n, m)
	}
	allRows(t, now, fresh)
}

// A master that is lost may undo what its replica has not acknowledged. So a generation with updates is not committed then.
func TestRewriter_WaitsForReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: 30 * time.Second})
	old, fresh := rowsOf(1000, 73), rowsOf(1000, 74)
	load(t, c.URL(), "x", old, Options{})
	s, _ := openTable(t, c.URL(), Options{Table: "x", replicasWait: 200 * time.Millisecond})
	replica := c.Nodes[3+int(slotOf(keys{"x"}.last()))*3/slots]
	replica.Pause()
	if err := rewrite(t, s, fresh, 1000); !errors.Is(err, errReplicas) || !strings.Contains(err.Error(), "is not committed") {
		t.Errorf("got %v", err)
	}
	replica.Resume()
	_, table := openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, old)
	untilRewritten(t, s, fresh)
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

// untilRewritten rewrites all rows again until the replica has caught up.
func untilRewritten(t *testing.T, s *Store, fresh []byte) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := rewrite(t, s, fresh, int64(len(fresh)/testRowBytes))
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			t.Fatal(err)
		}
	}
}

// untilAnswer asks a node again until its answer has a text.
func untilAnswer(t *testing.T, n *redistest.Node, command, want string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		answer, err := n.Ask(command)
		if err == nil && strings.Contains(answer, want) {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("%s lacks %q: %v %s", command, want, err, answer)
		}
	}
}

// A replica that the cluster has marked as failed has not acknowledged either. CLUSTER SLOTS no longer names it then. A loader does not wait for it.
func TestRewriter_WaitsForFailedReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: time.Second})
	old, fresh := rowsOf(1000, 77), rowsOf(1000, 78)
	load(t, c.URL(), "x", old, Options{})
	s, _ := openTable(t, c.URL(), Options{Table: "x", replicasWait: 200 * time.Millisecond})
	replica := c.Nodes[3+int(slotOf(keys{"x"}.last()))*3/slots]
	replica.Pause()
	for _, n := range c.Nodes[:3] {
		untilAnswer(t, n, "CLUSTER NODES", " slave,fail ")
	}
	if answer, err := c.Nodes[0].Ask("CLUSTER SLOTS"); err != nil || strings.Contains(answer, replica.ID) {
		t.Errorf("CLUSTER SLOTS names the failed replica: %v %s", err, answer)
	}
	if err := rewrite(t, s, fresh, 1000); !errors.Is(err, errReplicas) || !strings.Contains(err.Error(), "is not committed") {
		t.Errorf("got %v", err)
	}
	var warnings strings.Builder
	load(t, c.URL(), "y", fresh, Options{Logger: slog.New(slog.NewTextHandler(&warnings, nil))})
	if strings.Contains(warnings.String(), "not all replicas") {
		t.Errorf("a loader waited: %s", &warnings)
	}
	replica.Resume()
	_, table := openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, old)
	untilRewritten(t, s, fresh)
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

func TestRewriter_WaitsForReplicasOfASingleServer(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1, Replicas: 1}) // two servers
	server, replica := c.Nodes[0], c.Nodes[1]
	if _, err := replica.Ask("REPLICAOF " + strings.ReplaceAll(server.Addr, ":", " ")); err != nil {
		t.Fatal(err)
	}
	untilAnswer(t, server, "INFO replication", "state=online")
	url := "redis://" + server.Addr
	old, fresh := rowsOf(1000, 79), rowsOf(1000, 80)
	load(t, url, "x", old, Options{})
	s, _ := openTable(t, url, Options{Table: "x", replicasWait: 200 * time.Millisecond})
	replica.Pause()
	if err := rewrite(t, s, fresh, 1000); !errors.Is(err, errReplicas) || !strings.Contains(err.Error(), "is not committed") {
		t.Errorf("got %v", err)
	}
	replica.Resume()
	untilRewritten(t, s, fresh)
	_, table := openTable(t, url, Options{Table: "x"})
	allRows(t, table, fresh)
}

// While a slot moves, keys lie on one master or the other, so that neither's replicas suffice. A merge waits for that, at most so long, and says so.
func TestRewriter_WaitsForMovingSlots(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	old, fresh := rowsOf(1000, 81), rowsOf(1000, 82)
	load(t, c.URL(), "x", old, Options{})
	s, _ := openTable(t, c.URL(), Options{Table: "x", settleWait: 200 * time.Millisecond})
	slot := int(slotOf("x")) + 1 // of the same master as the control keys, but of none of them: all commands succeed
	from, to := c.Nodes[slot*3/slots], c.Nodes[(slot*3/slots+1)%3]
	c.BeginMove(slot, from, to)
	says := fmt.Sprintf("slots are on their way between masters: %s has %d", from.Addr, slot)
	if to.Addr < from.Addr {
		says = fmt.Sprintf(", %s has %d", from.Addr, slot)
	}
	if err := s.Settle(t.Context()); !errors.Is(err, pages.ErrUnsettled) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v", err)
	}
	if err := rewrite(t, s, fresh, 1000); !errors.Is(err, pages.ErrUnsettled) || !strings.Contains(err.Error(), "is not committed") {
		t.Errorf("got %v", err)
	}
	if n := s.Stats().MovingSlots; n != 0 {
		t.Errorf("a merge waits for %d slots", n)
	}
	_, table := openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, old)
	for _, n := range []*redistest.Node{from, to} {
		if _, err := n.Ask(fmt.Sprintf("CLUSTER SETSLOT %d STABLE", slot)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Settle(t.Context()), rewrite(t, s, fresh, 1000)); err != nil {
		t.Error(err)
	}
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

// A merge goes on when slots have arrived, those of pages and of the control keys: what it writes meanwhile follows the keys. Reads do not wait for that.
func TestRewriter_GoesOnWhenSlotsHaveMoved(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1})
	old, fresh := rowsOf(1000, 83), rowsOf(1000, 84)
	load(t, c.URL(), "x", old, Options{})
	var mu sync.Mutex
	said := ""
	s, table := openTable(t, c.URL(), Options{Table: "x", Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		said += string(b)
		return len(b), nil
	}), nil))})
	moved := []int{int(slotOf("x")), int(slotOf(s.control.page(1, 0))), int(slotOf(s.control.page(1, 1)))}
	way := func(slot int) (from, to *redistest.Node) { return c.Nodes[slot*3/slots], c.Nodes[(slot*3/slots+1)%3] }
	for _, slot := range moved {
		from, to := way(slot)
		c.BeginMove(slot, from, to)
		c.MoveKeys(slot, 1, from, to) // some keys lie on either master
	}
	merged := make(chan error, 1)
	go func() { merged <- rewrite(t, s, fresh, 1000) }()
	for begin := time.Now(); s.Stats().MovingSlots == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the merge does not wait")
		}
	}
	var longest time.Duration
	for range 20 {
		begin := time.Now()
		allRows(t, table, old)
		longest = max(longest, time.Since(begin))
	}
	t.Logf("all rows in %v at most while slots move", longest)
	if longest > patience/2 {
		t.Errorf("reads waited %v", longest)
	}
	select {
	case err := <-merged:
		t.Fatalf("the merge has ended: %v", err)
	default:
	}
	for _, slot := range moved {
		from, to := way(slot)
		c.EndMove(slot, from, to)
	}
	begin := time.Now()
	if err := <-merged; err != nil {
		t.Fatal(err)
	}
	t.Logf("the merge ended %v after the last slot had arrived", time.Since(begin))
	mu.Lock()
	if !strings.Contains(said, "a merge waits for slots") || !strings.Contains(said, "the merge goes on") {
		t.Errorf("the log says %q", said)
	}
	mu.Unlock()
	allRows(t, table, old)
	_, table = openTable(t, c.URL(), Options{Table: "x"})
	allRows(t, table, fresh)
}

func TestMaster_OfAnswers(t *testing.T) {
	t.Parallel()
	const nodes = `a 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-5 7
b 127.0.0.1:2@12,host slave a 0 0 2 connected
c 127.0.0.1:3@13 slave,fail? a 0 0 2 connected
d 127.0.0.1:4@14 replica,fail a 0 0 2 disconnected
e :0@0 slave,fail,noaddr a 0 0 2 disconnected
f 127.0.0.1:6@16 slave g 0 0 2 connected
g 127.0.0.1:7@17 master,fail - 0 0 3 connected 8-16383
`
	for _, text := range []string{nodes, "txt:" + nodes} { // by RESP3 the first word has the format before it
		m, err := parseNodes(text)
		if err != nil || m.addr != "127.0.0.1:1" || m.up != 2 || m.down != 2 || m.moving != nil || !slices.Equal(m.slots, [][2]int{{0, 5}, {7, 7}}) {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if m, err := parseNodes("a :1@2 myself,master - 0 0 1 connected 0-5 [5->-b] [9-<-c]\n"); err != nil || !slices.Equal(m.moving, []int{5, 9}) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "a b c", "a :1@2 myself,slave b 0 0 1 connected", "a :1@2 myself,master - 0 0 1 connected 0-16384", "a :1@2 myself,master - 0 0 1 connected [x->-b]"} {
		if m, err := parseNodes(bad); err == nil {
			t.Errorf("%q: %+v", bad, m)
		}
	}
	if m, err := parseReplication("# Replication\r\nrole:master\r\nconnected_slaves:2\r\n"); err != nil || m.replicas(true) != 2 || m.replicas(false) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "connected_slaves:x\r\n"} {
		if m, err := parseReplication(bad); !errors.Is(err, errAnswer) {
			t.Errorf("%q: %+v, %v", bad, m, err)
		}
	}
}

func TestLocal_ReopenTakesTheFolderAlong(t *testing.T) {
	t.Parallel()
	old, fresh, folder := rowsOf(2000, 75), rowsOf(2000, 76), t.TempDir()
	place := pages.NewMemory()
	if err := packTo(t.Context(), place.Writer(), "x", old); err != nil {
		t.Fatal(err)
	}
	s, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	l, table := openLocal(t, s, folder, 1<<30)
	allRows(t, table, old)
	settled(l)
	if err := rewrite(t, l, fresh, 2000); err != nil {
		t.Fatal(err)
	}
	again, err := l.Reopen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := again.(*Local)
	now, err := pages.OpenStores(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	hits := l.counts.hits.Load()
	for range 2 {
		allRows(t, now, fresh)
		allRows(t, table, old) // from the store behind
		settled(next)
	}
	if n := next.counts.hits.Load(); n != int64(next.Manifest().Pages) || l.counts.hits.Load() != hits {
		t.Errorf("%d hits in the folder, and %d of the store that has left it", n, l.counts.hits.Load()-hits)
	}
	if err := errors.Join(now.Close(), table.Close()); err != nil {
		t.Fatal(err)
	}
	// The folder has the pages of the new generation for the next process.
	if s, err = place.Open(); err != nil {
		t.Fatal(err)
	}
	l, table = openLocal(t, s, folder, 1<<30)
	allRows(t, table, fresh)
	if n := l.counts.hits.Load(); n != int64(l.Manifest().Pages) {
		t.Errorf("%d hits", n)
	}
	// A folder that cannot be used any more is done without.
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(filepath.Clean(folder), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if again, err = l.Reopen(t.Context()); err != nil || again.Name() != "memory" {
		t.Fatal(again, err)
	}
	if now, err = pages.OpenStores(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	allRows(t, now, fresh)
}
