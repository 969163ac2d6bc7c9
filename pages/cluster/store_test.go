package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
)

// TestCluster runs tests that share a cluster, as one takes seconds to begin. Each has a table of its own.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Replicas: 1})
	for name, test := range map[string]func(t *testing.T, c *redistest.Cluster, table string){
		"StoreReadsWhatWriterWrote":      readsWhatWriterWrote,
		"StoreSpreadsReadsOverReplicas":  spreadsReadsOverReplicas,
		"DamagedPagesComeFromOtherStore": damagedPagesComeFromTheOtherStore,
		"FilesFirstClusterBehind":        filesFirstClusterBehind,
		"GenerationsSwitchAndAreDropped": generationsSwitchAndAreDropped,
		"CommitWaitsForReplicas":         commitWaitsForReplicas,
		"WriterAbortLeavesNothing":       abortLeavesNothing,
		"WriterMayBeKilledAtAnyMoment":   writerMayBeKilledAtAnyMoment,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c, name)
		})
	}
}

func TestStore_OfASingleServer(t *testing.T) {
	t.Parallel()
	readsWhatWriterWrote(t, redistest.Start(t, redistest.Options{Masters: -1}), "x")
}

func readsWhatWriterWrote(t *testing.T, c *redistest.Cluster, name string) {
	data := rowsOf(8000, 1)
	o := Options{Table: name}
	if _, err := Open(t.Context(), c.URL(), o); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v", err)
	}
	load(t, c.URL(), name, data, Options{})
	s, table := openTable(t, c.URL(), o)
	allRows(t, table, data)
	if m := s.Manifest(); m.Generation != 1 || m.Name != name || m.Pages < 60 {
		t.Errorf("manifest %+v", m)
	}
	if n := s.counts.failed.Load(); n != 0 {
		t.Errorf("%d pages failed", n)
	}
	// Several calls at once, of several pages each.
	for i := range 20 {
		if failed, err := batch(t.Context(), table, data, 500, uint64(i)); failed != 0 || err != nil {
			t.Errorf("%d rows failed: %v", failed, err)
		}
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	s.ReadPages(t.Context(), []uint32{0}, [][]byte{make([]byte, s.manifest.BufferBytes())}, func(_ int, _ []byte, err error) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func spreadsReadsOverReplicas(t *testing.T, c *redistest.Cluster, name string) {
	data := rowsOf(8000, 2)
	load(t, c.URL(), name, data, Options{})
	for _, masters := range []bool{false, true} {
		s, table := openTable(t, c.URL(), Options{Table: name, Masters: masters})
		for range 5 {
			allRows(t, table, data)
		}
		read := int64(0)
		for _, sh := range s.net.now.Load().shards {
			for i, n := range sh.nodes {
				if pages := n.counts.pages.Load(); i > 0 {
					read += pages
				} else if masters && pages == 0 {
					t.Errorf("masters only: master %s was not read", n.addr)
				}
			}
		}
		if (read == 0) != masters {
			t.Errorf("masters only %v: %d pages were read from replicas", masters, read)
		}
	}
}

func TestOpen_TableOfSeveral(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	one, two := rowsOf(1000, 3), rowsOf(1000, 4)
	load(t, c.URL(), "one", one, Options{})
	load(t, c.URL()+"/two", "two", two, Options{})
	if _, err := Open(t.Context(), c.URL(), Options{}); err == nil || !strings.Contains(err.Error(), "the address must end in /TABLE, one of") {
		t.Errorf("no name: %v", err)
	}
	if _, err := Open(t.Context(), c.URL()+"/two", Options{Table: "one"}); err == nil || !strings.Contains(err.Error(), "table (two) of the address must be one") {
		t.Errorf("two names: %v", err)
	}
	if _, err := Open(t.Context(), c.URL()+"/three", Options{}); !errors.Is(err, ErrNoTable) {
		t.Errorf("no such name: %v", err)
	}
	_, table := openTable(t, c.URL()+"/two", Options{})
	allRows(t, table, two)
	_, table = openTable(t, c.URL(), Options{Table: "one"})
	allRows(t, table, one)
}

func TestOpen_ManifestOfAnotherTable(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), "one", rowsOf(1000, 3), Options{})
	if _, err := c.Nodes[0].Ask("COPY tc:{one}:manifest tc:{two}:manifest"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), c.URL(), Options{Table: "two"})
	if err == nil || !strings.Contains(err.Error(), `cluster: table two: its manifest is of another table ("one")`) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Nodes[0].Ask("SETRANGE tc:{one}:manifest 40 xxxx"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c.URL(), Options{Table: "one"}); err == nil || !strings.Contains(err.Error(), "wrong checksum") {
		t.Errorf("got %v", err)
	}
}

func commitWaitsForReplicas(t *testing.T, c *redistest.Cluster, name string) {
	load(t, c.URL(), name, rowsOf(20_000, 6), Options{})
	for i, replica := range c.Nodes[3:] {
		have, err := replica.Ask("KEYS tc:" + name + ":*")
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.Nodes[i].Ask("KEYS tc:" + name + ":*")
		if err != nil {
			t.Fatal(err)
		}
		if n, all := len(strings.Fields(have)), len(strings.Fields(want)); n != all || n == 0 {
			t.Errorf("replica %d has %d of %d keys", i, n, all)
		}
	}
}

func damagedPagesComeFromTheOtherStore(t *testing.T, c *redistest.Cluster, name string) {
	data := rowsOf(8000, 5)
	load(t, c.URL(), name, data, Options{})
	o := Options{Table: name, Masters: true} // replicas are damaged later
	damage := []string{"SETRANGE %s 100 damaged", "APPEND %s more", "DEL %s", "SET %s short", "SETRANGE %s 70000 x"}
	for page, command := range damage {
		key := keys{name}.page(1, uint32(page))
		if _, err := c.Nodes[int(slotOf(key))*3/slots].Ask(strings.ReplaceAll(command, "%s", key)); err != nil {
			t.Fatal(err)
		}
	}
	_, table := openTable(t, c.URL(), o)
	wrong := false
	rows := make([]int64, 8000)
	for i := range rows {
		rows[i] = int64(i)
	}
	stats := table.ReadRows(t.Context(), rows, func(i int, stored []byte, _ bool, err error) {
		if damaged := table.PageOf(int64(i)) < uint32(len(damage)); (err != nil) != damaged {
			t.Errorf("row %d: %v", i, err)
		}
		if err == nil && string(stored) != string(data[i*testRowBytes:(i+1)*testRowBytes]) {
			wrong = true
		}
	})
	if failed := stats.Stores[0].Failed; failed != int64(len(damage)) || wrong {
		t.Errorf("%d pages failed, must %d; wrong rows: %v", failed, len(damage), wrong)
	}

	// Behind the cluster a store that has them.
	place := pages.NewMemory()
	if err := packTo(t.Context(), place.Writer(), name, data); err != nil {
		t.Fatal(err)
	}
	memory, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	first, err := Open(t.Context(), c.URL(), o)
	if err != nil {
		t.Fatal(err)
	}
	both, err := pages.OpenStores(t.Context(), first, memory)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	allRows(t, both, data)
}

// Page files that were damaged after they were packed: what they lack comes from the cluster, which is not asked for anything else.
func filesFirstClusterBehind(t *testing.T, c *redistest.Cluster, name string) {
	data, dir := rowsOf(8000, 7), filepath.Join(t.TempDir(), "x.tc")
	w, err := pages.CreateFiles(dir)
	if err == nil {
		err = packTo(t.Context(), w, name, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	load(t, c.URL(), name, data, Options{})
	found, err := filepath.Glob(filepath.Join(dir, "*", "pages-*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("page files %v, %v", found, err)
	}
	f, err := os.OpenFile(found[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damaged"), 100); err != nil { // the first page
		t.Fatal(err)
	}
	if err := f.Truncate(info.Size() - 3*64<<10 - 10); err != nil { // the last ones, and a part of another
		t.Fatal(err)
	}
	files, err := pages.OpenFiles(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), c.URL(), Options{Table: name, Hedge: -1})
	if err != nil {
		t.Fatal(err)
	}
	table, err := pages.OpenStores(t.Context(), files, s)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	allRows(t, table, data)
	asked := int64(0)
	for _, n := range s.Stats().Nodes {
		asked += n.Pages
	}
	if asked < 4 || asked > 6 {
		t.Errorf("%d pages came from the cluster", asked)
	}
}
