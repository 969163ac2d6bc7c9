//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/telemetry"
	"github.com/tensorcache/tensorcache/serve"
)

// TestRun_ChangesUnderWay: tables that cannot be opened leave those that there are, and a signal to end ends the loading of others.
func TestRun_ChangesUnderWay(t *testing.T) {
	var opened atomic.Int64
	loading := make(chan struct{})
	newCache = func(ctx context.Context, o cache.Options) (*cache.Cache, error) {
		switch opened.Add(1) {
		case 1:
			return cache.NewContext(ctx, o)
		case 2:
			return nil, errors.New("the drive is broken")
		}
		close(loading)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer func() { newCache = cache.NewContext }()
	socket := "unix:" + filepath.Join(t.TempDir(), "s")
	c, err := Load(strings.Fields("--table name=t,dtype=float32,columns=4,capacity=100 --gpu-memory 4KiB --device host --listen " + socket))
	if err != nil {
		t.Fatal(err)
	}
	var out, log lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- Run(c, Program{Stdout: &out, Stderr: &log}) }()
	for begun := time.Now(); out.String() == "" && time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
	}
	control, err := serve.Dial(t.Context(), socket, "test")
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer control.Close()
	add := serve.TableChange{Change: "add", Table: "name=u,dtype=float32,columns=4,capacity=100"}
	if _, err := control.ChangeTable(t.Context(), add); err == nil || err.Error() != "the drive is broken" {
		t.Errorf("%v", err)
	}
	if s, err := control.Status(t.Context()); err != nil || len(s.Tables) != 1 {
		t.Errorf("%v, %+v", err, s)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := control.ChangeTable(context.Background(), add)
		failed <- err
	}()
	<-loading
	syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, log.String())
		}
	case <-time.After(time.Minute):
		t.Fatalf("SIGTERM does not end the loading of a table:\n%s", log.String())
	}
	if err := <-failed; err == nil {
		t.Error("the table was added")
	}
}

// TestConfig_Groups: tables with memory of their own have caches of their own, with what they ask for, and a share of the others is of those only.
func TestConfig_Groups(t *testing.T) {
	c, err := Load(strings.Fields("--table name=a,dtype=float32,columns=16,capacity=1000 --table name=b,dtype=float32,columns=16,capacity=1000,gpu_memory=50% --table name=c,dtype=float32,columns=16,capacity=1000" +
		" --gpu-memory 10% --device host --http 127.0.0.1:0 --name x --snapshot " + filepath.Join(t.TempDir(), "s")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range c.groups() {
		got = append(got, strings.Join(g.names(), "+")+" "+g.Budget+" "+g.Name+" "+filepath.Base(g.Snapshot))
	}
	if want := "a+c 10% x s, b 50% x.b s.b"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	p, err := c.Check()
	if err != nil || len(p.Tables) != 3 || p.Budgets[0] != 12800+32000 || len(p.Problems) > 0 {
		t.Errorf("%v, %+v", err, p)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil || !strings.Contains(b.String(), "host tier: every row (a, c)") || !strings.Contains(b.String(), "host tier: every row (b)") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for share, want := range map[string]string{"10%": "10%", "3MiB": "5%", "1%,2%": "5%"} {
		c.Budget = share
		if one := c.alone(TableSpec{Name: "d"}); one.Budget != want || one.leastBudget != 1<<20 {
			t.Errorf("beside %s: %s, at least %d B", share, one.Budget, one.leastBudget)
		}
	}
}

// loaded returns a program with the tables of a config, as it is before it serves them.
func loaded(t *testing.T, args string) *running {
	t.Helper()
	c, err := Load(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{config: c, log: slog.New(slog.DiscardHandler), life: t.Context(), steady: t.Context(), configs: map[*cache.Cache]*Config{}}
	if r.observed, err = telemetry.Start(t.Context(), telemetry.Options{Logger: r.log, Console: io.Discard}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.observed.Close() })
	if err := r.loadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.closeCaches() })
	return r
}

const empty = " --table dtype=float32,columns=4,capacity=100,name="

// TestRunning_ReloadTables: what fails after a change is published keeps neither the other changes nor the config from being as they are to be.
func TestRunning_ReloadTables(t *testing.T) {
	const common = "--device host --gpu-memory 4KiB --http 127.0.0.1:0"
	r := loaded(t, common+empty+"a"+empty+"b"+empty+"c,gpu_memory=4KiB")
	shared := r.tables.View().Caches[0]
	if err := errors.Join(shared.Update(t.Context(), 0, []int64{0}, make([]byte, 16)), shared.Close()); err != nil { // so the rows of a and b cannot be withdrawn
		t.Fatal(err)
	}
	next, err := Load(strings.Fields(common + empty + "c,gpu_memory=4KiB" + empty + "d"))
	if err != nil {
		t.Fatal(err)
	}
	r.changing.Lock()
	_, late, err := r.applyLocked(t.Context(), tableChange{change: "drop", spec: TableSpec{Name: "a"}}, tableChange{change: "add", spec: next.Tables[1]})
	r.changing.Unlock()
	if err != nil || !errors.Is(late, cache.ErrClosed) {
		t.Errorf("late %v, error %v", late, err)
	}
	if err := r.reloadTables(next); err != nil || !slices.Equal(r.tables.View().Names(), []string{"c", "d"}) || !slices.Equal(r.config.Tables, next.Tables) {
		t.Errorf("%v: %q, config %v", err, r.tables.View().Names(), r.config.Tables)
	}
}

// TestRunning_SharedLocked: --gpu-memory is of the tables without memory of their own, also where a table that has its own is the first.
func TestRunning_SharedLocked(t *testing.T) {
	r := loaded(t, "--device host --gpu-memory 4KiB --http 127.0.0.1:0"+empty+"a,gpu_memory=8KiB")
	if err := r.budgetCommand(t.Context(), 16<<10); err == nil || !strings.Contains(err.Error(), "every table has a budget of its own") {
		t.Error(err)
	}
	b := TableSpec{Name: "b", DType: "float32", Columns: 4, Capacity: 100}
	r.changing.Lock()
	_, _, err := r.applyLocked(t.Context(), tableChange{change: "add", spec: b})
	r.changing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.budgetCommand(t.Context(), 2<<20); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{8 << 10, 2 << 20} {
		if s, err := r.tables.View().Caches[i].Stats(); err != nil || s.Devices[0].BudgetBytes != want {
			t.Errorf("cache %d: %d, want %d, error %v", i, s.Devices[0].BudgetBytes, want, err)
		}
	}
}

// TestRunning_TemporarySnapshot: without a folder for temporary files it is beside --snapshot, or an error.
func TestRunning_TemporarySnapshot(t *testing.T) {
	r := loaded(t, "--device host --gpu-memory 4KiB --http 127.0.0.1:0"+empty+"a")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if path, err := r.temporarySnapshot(r.caches[0]); err == nil {
		t.Errorf("%s was written", path)
	}
	r.config.Snapshot = filepath.Join(t.TempDir(), "snapshot")
	if path, err := r.temporarySnapshot(r.caches[0]); err != nil || filepath.Dir(path) != filepath.Dir(r.config.Snapshot) {
		t.Errorf("%q, error %v", path, err)
	}
}

// TestTableSpec_Within: relative paths of a command are of its folder, all of them; addresses are not paths.
func TestTableSpec_Within(t *testing.T) {
	for text, want := range map[string]string{
		"file=pages,log=log,cold=redis://h:1,cold_cache=cache": "file=/at/pages,log=/at/log,cold=redis://h:1,cold_cache=/at/cache",
		"file=redis://h:1/t,log=/log":                          "file=redis://h:1/t,log=/log",
	} {
		spec, err := parseTable(text)
		if err != nil {
			t.Fatal(err)
		}
		if spec.within("/at"); spec.String() != want {
			t.Errorf("%s, want %s", spec.String(), want)
		}
	}
}
