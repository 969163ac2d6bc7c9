//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// resident makes the model's table a resident one, with rows in overflow places.
func resident(o *cache.Options) {
	o.Tables[0] = o.Tables[0].ResidentWith(cache.ResidentOptions{Target: 48, MaxTarget: 96})
	o.Budget, o.Refresh = 1<<20, cache.RefreshOptions{}
}

// retargets moves the model's table to one target after the other until the end, at least once. It returns how often.
func retargets(t *testing.T, c *cache.Cache, end func() bool) (moves int) {
	for ; moves == 0 || !end(); moves++ {
		if err := c.Retarget(ctx, 0, []int{16, 96, 64, 32, 80, 48}[moves%6]); err != nil {
			t.Errorf("move %d: %v", moves, err)
			break
		}
	}
	return moves
}

// checkOverflow attaches to the owner of a resident table, and reads all rows: overflow reads and their bytes are counted exactly here and there.
func checkOverflow(t *testing.T, c *cache.Cache) {
	s := listen(t, c, serve.Options{})
	a := attach(t, s, cache.AttachOptions{})
	of := func(c *cache.Cache) (cache.TableStats, cache.ResidentStats) {
		s, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Tables[0], *s.Tables[0].Resident
	}
	if err := c.Retarget(ctx, 0, 16); err != nil {
		t.Fatal(err)
	}
	until(t, "all rows are in their own places", func() bool {
		all, err := c.Stats()
		return err != nil || all.OverlayRows == 0
	})
	was, before := of(c)
	rows := make([]int64, c.Rows(0))
	for i := range rows {
		rows[i] = int64(i)
	}
	if err := a.Gather(ctx, cache.Request{Rows: rows, Out: make([]byte, len(rows)*modelRowBytes)}); err != nil {
		t.Fatal(err)
	}
	is, now := of(c)
	mine, own := of(a)
	n, bytes := now.OverflowReads-before.OverflowReads, now.OverflowBytesRead-before.OverflowBytesRead
	if n != now.OverflowRows || bytes != now.OverflowBytes || n == 0 || own.OverflowReads != n || own.OverflowBytesRead != bytes {
		t.Errorf("owner counted %d overflow reads of %d B, client %d of %d B; there are %d of %d B", n, bytes, own.OverflowReads, own.OverflowBytesRead, now.OverflowRows, now.OverflowBytes)
	}
	overLink := bytes // what is read of peers does not cross the link to the host
	if now.PeerBytes > 0 {
		overLink = 0
	}
	if counted := is.HostBytesMoved - was.HostBytesMoved; counted != overLink || mine.HostBytesMoved != overLink {
		t.Errorf("owner counted %d B of host memory, client %d, of %d B", counted, mine.HostBytesMoved, overLink)
	}
	if is.Hits-was.Hits != int64(len(rows)) || is.Misses != 0 || mine.Hits != int64(len(rows)) || mine.Misses != 0 {
		t.Errorf("owner counted %d hits and %d misses, client %d and %d, of %d rows", is.Hits-was.Hits, is.Misses, mine.Hits, mine.Misses, len(rows))
	}
	all, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range all.Devices {
		if d.Misses != 0 {
			t.Errorf("device %d has %d misses", i, d.Misses)
		}
	}
}

// residentRows makes open's table a resident one. Half of each raw row is in an overflow place.
func residentRows(o *cache.Options) {
	o.Tables[0] = o.Tables[0].ResidentWith(cache.ResidentOptions{Target: 32, MaxTarget: 64})
	o.Budget = lifeRows * 80
}

// TestResident_ClientKilled: clients that are killed in batches of a resident table leave nothing behind, and exact counters.
func TestResident_ClientKilled(t *testing.T) { killClients(t, 4, "gather", residentRows) }

// TestResident_OwnerKilled: clients go on reading a resident table whose owner is killed, and attach to the next owner.
func TestResident_OwnerKilled(t *testing.T) { killOwner(t, "host", "resident") }

// TestResident_ClientStopped: a stopped client holds a move to another target back, which fails after a while with its name, and can be repeated.
func TestResident_ClientStopped(t *testing.T) {
	c := open(t, lifeRows, func(o *cache.Options) { shared(o); residentRows(o) })
	s := listen(t, c, serve.Options{StoppedAfter: 100 * time.Millisecond})
	child := start(t, "gather", s.Address())
	child.expect("attached")
	child.signal(syscall.SIGSTOP)
	for range buddy.MaxRanges + 1 { // the later ones find what the first has left
		if err := c.Retarget(ctx, 0, 64); !errors.Is(err, cache.ErrHeld) || !strings.Contains(err.Error(), "gatherer") {
			t.Fatal(err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := c.Retarget(limited, 0, 64); err == nil {
		t.Error("moved while a client was stopped")
	}
	child.signal(syscall.SIGCONT)
	until(t, "the table has moved", func() bool { return c.Retarget(ctx, 0, 64) == nil })
	if all, err := c.Stats(); err != nil || all.Tables[0].Resident.TargetBytes != 64 || all.Tables[0].Resident.BuddyBytes != 0 {
		t.Errorf("%v, %+v", err, all.Tables[0].Resident)
	}
}

// TestResident_RetargetByClient: a client has the owner move a table, and gets its errors.
func TestResident_RetargetByClient(t *testing.T) {
	const rows = 1000
	c := open(t, rows, func(o *cache.Options) {
		shared(o)
		residentRows(o)
		other, err := cache.FromSlice("cached", make([]int64, 80), 8)
		if err != nil {
			t.Fatal(err)
		}
		o.Tables = append(o.Tables, other)
	})
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	r := rand.New(rand.NewPCG(3, 4))
	for _, target := range []int{64, 48, 16} {
		checkRows(t, a, rows, r)
		if err := a.Retarget(ctx, 0, target); err != nil {
			t.Fatal(err)
		}
		if s, err := a.Stats(); err != nil || s.Tables[0].Resident.TargetBytes != target || s.Tables[0].Misses != 0 {
			t.Errorf("target %d: %v, %+v", target, err, s.Tables[0].Resident)
		}
		checkRows(t, a, rows, r)
	}
	for _, one := range []struct {
		table, target int
		is            error
		want          string
	}{
		{0, 24, cache.ErrOptions, "target (24 B) must be a multiple of 16"},
		{0, 80, nil, ""}, // taken for the row's length
		{1, 32, cache.ErrOptions, "table cached must be resident"},
		{2, 32, cache.ErrTable, ""},
	} {
		if err := a.Retarget(ctx, one.table, one.target); !errors.Is(err, one.is) || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("table %d to %d: %v, want %v %q", one.table, one.target, err, one.is, one.want)
		}
	}
	if err := a.Gather(ctx, cache.Request{Table: 1, Rows: []int64{3}, Out: make([]byte, 64)}); err != nil {
		t.Error(err)
	}
}

// TestResident_Pooled: a client adds up rows of a resident table as its owner does, in whatever slots they lie.
func TestResident_Pooled(t *testing.T) { pooledResident(t, func(*cache.Options) {}) }

func pooledResident(t *testing.T, change func(*cache.Options)) {
	const rows, columns, bag = 2000, 48, 10
	r := rand.New(rand.NewPCG(5, 6))
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	c := open(t, 1, func(o *cache.Options) {
		table, err := cache.FromSlice("sums", values, columns)
		if err != nil {
			t.Fatal(err)
		}
		o.Tables = []cache.Table{table.WithCodec("rank").ResidentWith(cache.ResidentOptions{Target: 64, MaxTarget: 160})}
		o.Budget, o.Shared = 1<<20, true
		change(o)
	})
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	ids := make([]int64, 100*bag)
	var want [100 * columns]float32
	for i := range ids {
		ids[i] = r.Int64N(rows)
		for k := range columns {
			want[i/bag*columns+k] += values[ids[i]*columns+int64(k)]
		}
	}
	for _, target := range []int{64, 160, 32} {
		if err := c.Retarget(ctx, 0, target); err != nil {
			t.Fatal(err)
		}
		for who, of := range map[string]*cache.Cache{"owner": c, "client": a} {
			var sums [len(want)]float32
			if err := of.Gather(ctx, cache.Request{Rows: ids, Out: cache.AsBytes(sums[:]), Pool: &cache.Pooling{Bag: bag}}); err != nil || sums != want {
				t.Errorf("target %d: %s: %v, sums are others", target, who, err)
			}
		}
	}
}

// TestResident_AttachedRanges: a client reads a table whose ranges of rows have targets of their own, and goes on when it moves to one.
func TestResident_AttachedRanges(t *testing.T) {
	const rows, rowBytes = 600, 64
	data := make([]byte, rows*rowBytes) // the first half shrinks to nothing
	r := rand.New(rand.NewPCG(22, 80))
	for i := range data[rows/2*rowBytes:] {
		data[rows/2*rowBytes+i] = byte(r.Uint32())
	}
	c := open(t, rows, func(o *cache.Options) {
		shared(o)
		table, err := cache.FromBytes("features", dtype.Float32, data, rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		o.Tables = []cache.Table{table.WithCodec("ibp").Resident()}
		o.Budget = 1 << 20
	})
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	ids, out := make([]int64, rows), make([]byte, len(data))
	for i := range ids {
		ids[i] = int64(i)
	}
	for moved := range 2 {
		if s, err := a.Stats(); err != nil || (len(s.Tables[0].Resident.Ranges) > 1) != (moved == 0) {
			t.Fatalf("moved: %v; %v, %+v", moved == 1, err, s.Tables[0].Resident)
		}
		clear(out)
		if err := a.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil || !bytes.Equal(out, data) {
			t.Fatalf("moved: %v; wrong rows, %v", moved == 1, err)
		}
		if err := c.Retarget(ctx, 0, 16); err != nil {
			t.Fatal(err)
		}
	}
}
