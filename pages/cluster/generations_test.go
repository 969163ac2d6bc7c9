package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// keysOf counts the keys of pages and parts of a generation.
func keysOf(t *testing.T, c *redistest.Cluster, table string, generation int) int {
	t.Helper()
	n := 0
	for _, node := range c.Nodes[:min(3, len(c.Nodes))] { // the masters
		all, err := node.Ask(fmt.Sprintf("KEYS tc:%s:%d:*", table, generation))
		if err != nil {
			t.Fatal(err)
		}
		n += len(strings.Fields(all))
	}
	return n
}

// dropOne deletes one generation.
func dropOne(t *testing.T, url string, generation uint64, o Options) error {
	t.Helper()
	c, err := administer(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	return c.drop(t.Context(), generation)
}

func generationsSwitchAndAreDropped(t *testing.T, c *redistest.Cluster, name string) {
	one, two := rowsOf(3000, 21), rowsOf(4000, 22)
	load(t, c.URL(), name, one, Options{})
	_, first := openTable(t, c.URL(), Options{Table: name})
	load(t, c.URL(), name, two, Options{})
	_, second := openTable(t, c.URL(), Options{Table: name})
	allRows(t, first, one) // goes on with its generation
	allRows(t, second, two)

	all, err := Generations(t.Context(), c.URL(), Options{Table: name})
	if err != nil || len(all) != 2 || all[0].Current || !all[1].Current || len(all[0].Readers) != 1 || len(all[1].Readers) != 1 || all[1].State != ready {
		t.Fatalf("%+v, %v", all, err)
	}
	if host, _ := os.Hostname(); !strings.HasPrefix(all[0].Readers[0], fmt.Sprintf("%s:%d:", host, os.Getpid())) {
		t.Errorf("reader %s", all[0].Readers[0])
	}
	// Neither the one that is read nor the current one is dropped.
	for generation, want := range map[uint64]string{1: "is in use: it is read by ", 2: "is in use: it is the current one"} {
		if err := dropOne(t, c.URL(), generation, Options{Table: name}); !errors.Is(err, errInUse) || !strings.Contains(err.Error(), want) {
			t.Errorf("generation %d: %v", generation, err)
		}
	}
	if dropped, err := DropOld(t.Context(), c.URL(), Options{Table: name}); err != nil || len(dropped) != 0 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	allRows(t, first, one)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if dropped, err := DropOld(t.Context(), c.URL(), Options{Table: name}); err != nil || len(dropped) != 1 || dropped[0] != 1 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	if n := keysOf(t, c, name, 1); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	allRows(t, second, two)
}

func TestLease_RunsOutWithItsReader(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	data := rowsOf(1000, 23)
	load(t, c.URL(), "x", data, Options{})
	s, table := openTable(t, c.URL(), Options{Table: "x", Lease: 2 * time.Second})
	time.Sleep(3 * time.Second)
	load(t, c.URL(), "x", data, Options{})
	if err := dropOne(t, c.URL(), 1, Options{Table: "x"}); !errors.Is(err, errInUse) {
		t.Fatalf("a lease that is renewed: %v", err)
	}
	// The reader's process stands still for longer than its lease.
	close(s.lease.stop)
	s.lease.stopped.Wait()
	time.Sleep(2100 * time.Millisecond)
	if err := dropOne(t, c.URL(), 1, Options{Table: "x"}); err != nil {
		t.Fatal(err)
	}
	s.lease.stop = make(chan struct{})
	s.lease.stopped.Go(func() { s.lease.renew() })
	for begin := time.Now(); !s.lease.lost.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the reader does not notice that its generation is gone")
		}
	}
	if failed, err := batch(t.Context(), table, data, 100, 1); failed != 100 || !errors.Is(err, ErrDropped) || !errors.Is(err, ErrMissing) {
		t.Errorf("%d rows failed: %v", failed, err)
	}
}

func TestDrop_GoesOnWithWhatAnotherBegan(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), "x", rowsOf(3000, 24), Options{})
	load(t, c.URL(), "x", rowsOf(1000, 25), Options{})
	admin, err := administer(t.Context(), c.URL(), Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.close()
	// One that marked the generation, deleted a page, and died.
	s, _, err := admin.state(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	marked := s
	marked.is, marked.token = dropping, "dead"
	if ok, err := admin.swap(t.Context(), 1, s, marked, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := c.Nodes[0].Ask("DEL tc:x:1:5"); err != nil {
		t.Fatal(err)
	}
	if dropped, err := DropOld(t.Context(), c.URL(), Options{Table: "x"}); err != nil || len(dropped) != 1 {
		t.Errorf("dropped %v, %v", dropped, err)
	}
	if n := keysOf(t, c, "x", 1); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	// The dead one wakes up: its mark is gone, so it changes nothing.
	if ok, err := admin.swap(t.Context(), 1, marked, s, nil); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// A reader that takes its lease while a generation is being dropped either keeps the generation or sees that it is gone.
func TestLease_AgainstDrop(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	data := [][]byte{rowsOf(300, 26), rowsOf(300, 27)}
	load(t, c.URL(), "x", data[0], Options{})
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan error, 1)
	go func() {
		for n := 1; ctx.Err() == nil; n++ {
			w, err := NewWriter(ctx, c.URL(), Options{Table: "x"})
			if err == nil {
				if err = packTo(ctx, w, "x", data[n%2]); err == nil {
					_, err = DropOld(ctx, c.URL(), Options{Table: "x"})
				}
			}
			if err != nil && ctx.Err() == nil {
				loaded <- err
				return
			}
		}
		loaded <- nil
	}()
	generations := map[uint64]bool{}
	for range 60 {
		s, table := openTable(t, c.URL(), Options{Table: "x"})
		g := s.Manifest().Generation
		generations[g] = true
		allRows(t, table, data[(g+1)%2])
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	t.Logf("60 openings met %d generations", len(generations))
	if len(generations) < 2 {
		t.Error("no generation was switched meanwhile")
	}
}

func TestWriter_Misuse(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	if _, err := NewWriter(t.Context(), c.URL(), Options{}); err == nil || err.Error() != "cluster: the address must end in /TABLE" {
		t.Errorf("got %v", err)
	}
	w, err := NewWriter(t.Context(), c.URL(), Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.Repeat([]byte{1}, 100)
	if err := w.WritePages(t.Context(), 1, [][]byte{page}); err == nil || err.Error() != "cluster: first page (1) must be 0" {
		t.Errorf("got %v", err)
	}
	if err := w.WritePages(t.Context(), 0, [][]byte{page}); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context(), &pages.Manifest{Pages: 2, Generation: 1}, &pages.Parts{}); err == nil ||
		err.Error() != "cluster: 1 pages of generation 1 were written, the manifest has 2 of 1" {
		t.Errorf("got %v", err)
	}
	if err := w.Commit(t.Context(), &pages.Manifest{Pages: 1, Generation: 1, Name: "y"}, &pages.Parts{}); err == nil ||
		err.Error() != `cluster: name of the table ("y") in the manifest must be "x"` {
		t.Errorf("got %v", err)
	}
	// Others took it for dead.
	if _, err := c.Nodes[0].Ask("DEL tc:{x}:loader:1"); err != nil {
		t.Fatal(err)
	}
	if dropped, err := DropOld(t.Context(), c.URL(), Options{Table: "x"}); err != nil || len(dropped) != 1 {
		t.Fatalf("dropped %v, %v", dropped, err)
	}
	if err := w.become(t.Context(), w.is, nil); !errors.Is(err, ErrDropped) {
		t.Errorf("got %v", err)
	}
	if err := w.WritePages(t.Context(), 1, [][]byte{page}); !errors.Is(err, ErrDropped) {
		t.Errorf("got %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if err := w.WritePages(t.Context(), 1, [][]byte{page}); err == nil || !strings.Contains(err.Error(), "was committed or given up") {
		t.Errorf("got %v", err)
	}
}

func abortLeavesNothing(t *testing.T, c *redistest.Cluster, name string) {
	ctx, cancel := context.WithCancel(t.Context())
	w, err := NewWriter(ctx, c.URL(), Options{Table: name})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := packTo(ctx, w, name, rowsOf(3000, 28)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := keysOf(t, c, name, 1); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if all, err := Generations(t.Context(), c.URL(), Options{Table: name}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestWriter_MemoryIsFull(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1, Config: []string{"maxmemory 6mb", "maxmemory-policy noeviction"}})
	w, err := NewWriter(t.Context(), c.URL(), Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := packTo(t.Context(), w, "x", rowsOf(20_000, 29)); err == nil || !strings.Contains(err.Error(), "cluster: the memory of a node is full") {
		t.Errorf("got %v", err)
	}
}

// Pages and parts that are lost while they are loaded are found by Commit, and are not made anew empty.
func TestWriter_CommitLooksForPagesAndParts(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	for _, lost := range [][]string{{"3"}, {"index:0"}, {"index:0", "3"}} {
		w, err := NewWriter(t.Context(), c.URL(), Options{Table: "x", Logger: quiet(t)})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, key := range lost {
			names = append(names, fmt.Sprintf("tc:x:%d:%s", w.Generation(), key))
		}
		w.client = losing{w.client, func() {
			if n, err := c.Nodes[0].Ask("DEL " + strings.Join(names, " ")); err != nil || n != fmt.Sprint(len(names)) {
				t.Errorf("deleted %s of %v: %v", n, names, err)
			}
		}}
		err = packTo(t.Context(), w, "x", rowsOf(1000, 30))
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "key "+strings.Join(names, ", ")+":") {
			t.Errorf("%v: got %v", names, err)
		}
	}
	admin, err := administer(t.Context(), c.URL(), Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.close()
	if _, _, err := admin.wait(t.Context(), "tc:x:9:9", true); !errors.Is(err, ErrMissing) {
		t.Errorf("waited behind a key that is missing: %v", err)
	}
	if n, err := c.Nodes[0].Ask("EXISTS tc:x:9:9"); err != nil || n != "0" {
		t.Errorf("the key was made: %s, %v", n, err)
	}
}

// losing calls lose before Commit waits for replicas, which is after the last part was written.
type losing struct {
	valkey.Client
	lose func()
}

func (l losing) Dedicate() (valkey.DedicatedClient, func()) {
	l.lose()
	return l.Client.Dedicate()
}

// loaderEnv names, for a test's own process, the cluster that it loads generations into until it is killed.
const loaderEnv = "TENSORCACHE_TEST_LOADER"

// loaderLease is the lease of loaders that will be killed: longer than a busy machine has them wait.
const loaderLease = 3 * time.Second

func TestMain(m *testing.M) {
	if url := os.Getenv(loaderEnv); url != "" {
		for {
			w, err := NewWriter(context.Background(), url, Options{Lease: loaderLease})
			if err == nil {
				err = packTo(context.Background(), w, TableOf(url), loaderRows(w.Generation()))
			}
			if err == nil {
				_, err = DropOld(context.Background(), url, Options{})
			}
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// loaderRows are the rows of a generation of a loader that will be killed. Their number depends on the generation too.
func loaderRows(generation uint64) []byte {
	return rowsOf(500+int(generation%7)*100, 1000+generation%250)
}

func writerMayBeKilledAtAnyMoment(t *testing.T, c *redistest.Cluster, name string) {
	load(t, c.URL(), name, loaderRows(1), Options{})
	r := rand.New(rand.NewPCG(1, 2))
	before, seen := uint64(1), map[uint64]bool{}
	const kills = 25
	longest := 150 * time.Millisecond
	for range kills {
		loader := exec.Command(os.Args[0])
		loader.Env = append(os.Environ(), loaderEnv+"="+c.URL()+"/"+name)
		var out bytes.Buffer
		loader.Stdout = &out
		if err := loader.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Millisecond + time.Duration(r.Int64N(int64(longest))))
		loader.Process.Kill()
		loader.Wait() //nolint:errcheck // it was killed
		if out.Len() > 0 {
			t.Fatalf("loader: %s", &out)
		}
		s, table := openTable(t, c.URL(), Options{Table: name})
		generation := s.Manifest().Generation
		if generation < before {
			t.Fatalf("generation %d after %d", generation, before)
		}
		if generation == before { // the machine may be too busy for a loader to commit in that time
			longest = min(longest*3/2, 3*time.Second)
		} else {
			longest = 150 * time.Millisecond
		}
		before, seen[generation] = generation, true
		allRows(t, table, loaderRows(generation))
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// What the killed ones left is deleted once their marks have run out.
	time.Sleep(loaderLease + 100*time.Millisecond)
	if _, err := DropOld(t.Context(), c.URL(), Options{Table: name}); err != nil {
		t.Fatal(err)
	}
	all, err := Generations(t.Context(), c.URL(), Options{Table: name})
	if err != nil || len(all) != 1 || !all[0].Current {
		t.Fatalf("%+v, %v", all, err)
	}
	left := 0
	for _, n := range c.Nodes[:3] {
		names, err := n.Ask("KEYS tc:" + name + ":*")
		if err != nil {
			t.Fatal(err)
		}
		left += len(strings.Fields(names))
	}
	if want := keysOf(t, c, name, int(before)); left != want {
		t.Errorf("%d keys are left, %d are of generation %d", left, want, before)
	}
	t.Logf("%d kills, %d generations were met", kills, len(seen))
	if len(seen) < 3 {
		t.Error("loaders were killed before they could commit")
	}
}
