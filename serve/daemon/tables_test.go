//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
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
