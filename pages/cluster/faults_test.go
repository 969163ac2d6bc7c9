package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// patience is how long the tests wait for what comes much sooner on an idle machine.
const patience = time.Minute

// untilGood runs batches until one has all rows, and returns how long that took and how many batches failed. No batch may have a wrong row.
func untilGood(t *testing.T, table *pages.Table, data []byte) (time.Duration, int) {
	t.Helper()
	begin := time.Now()
	for n := 0; ; n++ {
		failed, err := batch(t.Context(), table, data, 300, uint64(n))
		if errors.Is(err, errWrongRow) {
			t.Fatal(err)
		}
		if failed == 0 {
			return time.Since(begin), n
		}
		if n < 3 {
			t.Logf("after %v: %d rows failed: %v", time.Since(begin).Round(time.Millisecond), failed, err)
		}
		if time.Since(begin) > patience {
			t.Fatalf("no good batch within %v: %v", patience, err)
		}
	}
}

func TestStore_ReadsGoOnWhenANodeIsKilled(t *testing.T) {
	t.Parallel()
	for name, config := range map[string][]string{"default": nil, "reads-when-down": {"cluster-allow-reads-when-down yes"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killNode(t, config)
		})
	}
}

func killNode(t *testing.T, config []string) {
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: 1500 * time.Millisecond, Config: config})
	data := rowsOf(8000, 11)
	load(t, c.URL(), "x", data, Options{})
	s, table := openTable(t, c.URL(), Options{})
	allRows(t, table, data)

	// Readers that never stop: no row may be wrong at any time.
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var good, bad, longest atomic.Int64
	for g := range 2 {
		readers.Go(func() {
			for n := uint64(0); ctx.Err() == nil; n++ {
				begin := time.Now()
				failed, err := batch(ctx, table, data, 200, n*2+uint64(g))
				for took := int64(time.Since(begin)); took > longest.Load(); {
					longest.CompareAndSwap(longest.Load(), took)
				}
				if errors.Is(err, errWrongRow) {
					t.Error(err)
				}
				if failed == 0 {
					good.Add(1)
				} else if ctx.Err() == nil {
					bad.Add(1)
				}
			}
		})
	}
	c.Nodes[0].Kill()
	took, failed := untilGood(t, table, data)
	t.Logf("master killed: first good batch after %v, %d batches with missing rows before", took.Round(time.Millisecond), failed)
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // until its replica has taken over
		if role, err := c.Nodes[3].Ask("ROLE"); err == nil && strings.HasPrefix(role, "master") {
			t.Logf("its replica took over after %v", time.Since(begin).Round(time.Millisecond))
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("no replica has taken over")
		}
	}
	allRows(t, table, data)
	cancel()
	readers.Wait()
	if bad.Load() > 0 {
		t.Errorf("%d batches had missing rows, though the replica has them all", bad.Load())
	}
	t.Logf("%d good batches, %d with missing rows, the longest took %v; %+v", good.Load(), bad.Load(),
		time.Duration(longest.Load()).Round(time.Millisecond), s.Stats())
	// The address begins with the dead node.
	if _, late := openTable(t, c.URL(), Options{Table: "x"}); true {
		allRows(t, late, data)
	}
	// A second master, whose slots have a replica too.
	c.Nodes[1].Kill()
	took, failed = untilGood(t, table, data)
	t.Logf("another master killed: first good batch after %v, %d batches with missing rows before", took.Round(time.Millisecond), failed)
}

func TestStore_ReadsGoOnWhenANodeIsPaused(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1, NodeTimeout: 30 * time.Second}) // no replica takes over
	data := rowsOf(8000, 12)
	load(t, c.URL(), "x", data, Options{})
	s, table := openTable(t, c.URL(), Options{})
	allRows(t, table, data)
	c.Nodes[0].Pause()
	took, failed := untilGood(t, table, data)
	t.Logf("master paused: first good batch after %v, %d batches with missing rows before; %d requests sent twice", took.Round(time.Millisecond), failed, s.counts.hedges.Load())
	if failed > 0 {
		t.Errorf("%d batches had missing rows, though the replica has them all", failed)
	}
	allRows(t, table, data)
	begin := time.Now()
	allRows(t, table, data)
	t.Logf("all rows in %v while it is paused", time.Since(begin).Round(time.Millisecond))
	c.Nodes[0].Resume()
	allRows(t, table, data)
}

// A cluster without replicas: what the paused node has fails within Patience, everything else is served.
func TestStore_PagesOfAPausedNodeFailInTime(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{NodeTimeout: 30 * time.Second})
	data := rowsOf(8000, 13)
	load(t, c.URL(), "x", data, Options{})
	o := Options{Timeout: 500 * time.Millisecond, Patience: 2 * time.Second}
	s, table := openTable(t, c.URL(), o)
	allRows(t, table, data)
	_, hasty := openTable(t, c.URL(), Options{Timeout: 300 * time.Millisecond, Patience: 300 * time.Millisecond, Hedge: -1})
	c.Nodes[1].Pause()
	if _, err := batch(t.Context(), hasty, data, 1000, 1); err == nil || !strings.Contains(err.Error(), c.Nodes[1].Addr) || strings.Contains(err.Error(), "%!") {
		t.Errorf("no outcome of any request yet: %v", err)
	}
	for n := range 4 {
		begin := time.Now()
		failed, err := batch(t.Context(), table, data, 1000, uint64(n))
		took := time.Since(begin)
		if errors.Is(err, errWrongRow) || failed == 0 || failed > 600 {
			t.Errorf("%d of 1000 rows failed: %v", failed, err)
		}
		page, ok := errors.AsType[*pages.PageError](err)
		if !ok || page.Table != "x" || !strings.Contains(err.Error(), c.Nodes[1].Addr) {
			t.Errorf("the error does not name table and node: %v", err)
		}
		if took > patience {
			t.Errorf("a batch took %v", took)
		}
		t.Logf("batch %d: %d rows failed after %v: %v", n, failed, took.Round(time.Millisecond), err)
	}
	// A context that ends sooner.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := batch(ctx, table, data, 1000, 9); err != nil && errors.Is(err, errWrongRow) {
		t.Error(err)
	}
	c.Nodes[1].Resume()
	untilGood(t, table, data)
	if s.counts.failed.Load() == 0 {
		t.Error("no page was counted as failed")
	}
}

// Slots go from one node to another while their pages are read.
func TestStore_SlotsMove(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	data := rowsOf(8000, 18)
	load(t, c.URL(), "x", data, Options{})
	s, table := openTable(t, c.URL(), Options{})
	allRows(t, table, data)
	ask := func(n *redistest.Node, format string, args ...any) {
		t.Helper()
		if _, err := n.Ask(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	from, to := c.Nodes[0], c.Nodes[1]
	host, port, _ := net.SplitHostPort(to.Addr)
	var moved []uint16
	for page := range s.Manifest().Pages {
		key := s.control.page(1, page)
		slot := slotOf(key)
		if int(slot)*3/slots != 0 || len(moved) == 6 {
			continue
		}
		moved = append(moved, slot)
		ask(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, from.ID)
		ask(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, to.ID)
		if page%2 == 0 { // of the others the page has not been moved yet
			ask(from, "MIGRATE %s %s %s 0 5000", host, port, key)
		}
	}
	if len(moved) < 6 {
		t.Fatalf("%d pages lie on the first node", len(moved))
	}
	allRows(t, table, data)
	for page := range s.Manifest().Pages {
		key := s.control.page(1, page)
		if !slices.Contains(moved, slotOf(key)) {
			continue
		}
		ask(from, "MIGRATE %s %s %s 0 5000", host, port, key)
		for _, n := range c.Nodes {
			ask(n, "CLUSTER SETSLOT %d NODE %s", slotOf(key), to.ID)
		}
	}
	for begin := time.Now(); ; { // the topology is fetched every 100 ms at most
		allRows(t, table, data)
		old := slices.IndexFunc(moved, func(slot uint16) bool { return s.net.now.Load().shard(slot).master().addr != to.Addr })
		if old < 0 {
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("slot %d is still looked for at %s", moved[old], s.net.now.Load().shard(moved[old]).master().addr)
		}
	}
}

// slowConn answers late.
type slowConn struct {
	net.Conn
	late *atomic.Int64
}

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(time.Duration(c.late.Load()))
	return c.Conn.Read(b)
}

func TestStore_ASlowNodeIsAvoided(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1})
	data := rowsOf(8000, 14)
	load(t, c.URL(), "x", data, Options{})
	var late atomic.Int64
	slow := c.Nodes[0].Addr
	o := Options{dial: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		nc, err := d.DialContext(ctx, "tcp", addr)
		if err == nil && addr == slow {
			nc = slowConn{nc, &late}
		}
		return nc, err
	}}
	s, table := openTable(t, c.URL(), o)
	allRows(t, table, data)
	var slowNode *node
	var others []*node
	for _, sh := range s.net.now.Load().shards {
		if sh.master().addr == slow {
			slowNode, others = sh.nodes[0], sh.nodes[1:]
		}
	}
	late.Store(int64(150 * time.Millisecond))
	before, otherBefore := slowNode.counts.pages.Load(), others[0].counts.pages.Load()
	for i := range 20 {
		if failed, err := batch(t.Context(), table, data, 300, uint64(i)); failed > 0 || err != nil {
			t.Fatalf("%d rows failed: %v", failed, err)
		}
	}
	own, other := slowNode.counts.pages.Load()-before, others[0].counts.pages.Load()-otherBefore
	t.Logf("%d pages from the slow node, %d from its replica, %d requests sent twice", own, other, s.counts.hedges.Load())
	if own*4 > other {
		t.Errorf("%d pages were read from the slow node, %d from its replica", own, other)
	}
}

func TestOpen_WrongPassword(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1, Config: []string{"user default on >right ~* +@all", "user reader on >other ~* +@all", "user half on >half ~tc:{x}* ~tc:tables +@all"}, Password: "right"})
	right := Options{Credentials: Credentials{Password: "right"}}
	load(t, c.URL(), "x", rowsOf(1000, 15), right)
	for _, credentials := range []Credentials{{}, {Password: "wrong"}, {User: "nobody", Password: "right"}} {
		begin := time.Now()
		_, err := Open(t.Context(), c.URL(), Options{Credentials: credentials})
		if err == nil || !strings.Contains(err.Error(), c.Nodes[0].Addr) || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("%+v: %v", credentials, err)
		}
		if named := strings.Contains(err.Error(), "TENSORCACHE_CLUSTER_PASSWORD_FILE"); named != (credentials.Password == "") {
			t.Errorf("%+v: %v", credentials, err)
		}
		if strings.Contains(err.Error(), "right") {
			t.Errorf("the error shows the password: %v", err)
		}
		if took := time.Since(begin); took > patience {
			t.Errorf("%+v: the error took %v", credentials, took)
		}
	}
	_, table := openTable(t, c.URL(), Options{Credentials: Credentials{User: "reader", Password: "other"}})
	allRows(t, table, rowsOf(1000, 15))

	// The commands that docs/cluster.md says suffice.
	const reading = "+hello +auth +ping +client +readonly +get +cluster +set +del +exists +sadd +srem +smembers +hget"
	const loading = " +eval +evalsha +incr +hset +hdel +hgetall +append +strlen +wait +info +unlink"
	for user, commands := range map[string]string{"least": reading, "loads": reading + loading} {
		if _, err := c.Nodes[0].AskAs("right", "ACL SETUSER "+user+" on >few ~tc:* "+commands); err != nil {
			t.Fatal(err)
		}
	}
	load(t, c.URL(), "y", rowsOf(1000, 16), Options{Credentials: Credentials{User: "loads", Password: "few"}})
	load(t, c.URL(), "y", rowsOf(1000, 17), Options{Credentials: Credentials{User: "loads", Password: "few"}})
	if dropped, err := DropOld(t.Context(), c.URL(), Options{Table: "y", Credentials: Credentials{User: "loads", Password: "few"}}); err != nil || len(dropped) != 1 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	_, table = openTable(t, c.URL(), Options{Table: "y", Credentials: Credentials{User: "least", Password: "few"}})
	allRows(t, table, rowsOf(1000, 17))
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	// One that may not read pages hears so at once.
	s, err := Open(t.Context(), c.URL(), Options{Table: "x", Credentials: Credentials{User: "half", Password: "half"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin := time.Now()
	s.ReadPages(t.Context(), []uint32{0}, [][]byte{make([]byte, s.manifest.BufferBytes())}, func(_ int, _ []byte, err error) {
		if err == nil || !strings.Contains(err.Error(), "node "+c.Nodes[0].Addr+": NOPERM") {
			t.Errorf("got %v", err)
		}
	})
	if took := time.Since(begin); took > patience {
		t.Errorf("the error took %v", took)
	}
}
